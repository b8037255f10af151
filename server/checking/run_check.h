// The check of one run: feeds a Checker from the store by cursor. A live
// check and one that goes on from a snapshot are the same.
//
// No rank is read more than kMaxAheadSteps ahead of the slowest live member of
// its replica groups, so that what waits for it stays bounded (a batch is read
// whole). Live is a member whose records are not all read or whose end is not
// known, once it has stepped. A rank for which no process came at all holds
// nobody back: once the others are that far, what waits for it is given up, and
// should it come after all, the check begins anew.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_CHECKING_RUN_CHECK_H_
#define TRAINCHECK_SERVER_CHECKING_RUN_CHECK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checker/checker.h"
#include "server/checking/rank_pace.h"
#include "server/runs/registry.h"
#include "server/store/store.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

// Next batch by process.
using BatchCursors = std::map<uint32_t, uint64_t>;

// A place in a world that others may have to wait for.
bool HasPlace(const RunView::Process& process);

class RunCheck {
 public:
  static constexpr uint64_t kMaxAheadSteps = 64;

  // `store` must outlive the check.
  RunCheck(const Store* store, const RunView& run, const InvariantSet& set);

  // Takes over a state that Save gave. An error says why it does not fit;
  // then this object is of no more use. REQUIRES: nothing was read yet.
  [[nodiscard]] absl::Status Restore(const stored::CheckSnapshot& snapshot);
  stored::CheckSnapshot Save() const;

  // Does the run go on from where this check is? If something came that was
  // judged to be over, or was judged by another end, the check must begin
  // anew: the reason; "": it goes on.
  std::string WhyAnew(const RunView& run) const;

  // Reads a share of what is stored beyond the cursors, from every process of
  // the oldest attempt that has more in turn. True if more may be read.
  // REQUIRES: WhyAnew is "".
  [[nodiscard]] absl::StatusOr<bool> Advance(const RunView& run);
  // The run has ended, and all of it was read by the last Advance.
  bool all_read() const { return all_read_; }
  // Judges every window that is still open. A state that was saved right before
  // serves a run that goes on after all. REQUIRES: all_read.
  void End();

  const Checker& checker() const { return checker_; }
  std::vector<Violation> TakeChanges() { return checker_.TakeChanges(); }
  BatchCursors Cursors() const;
  // Was the end of the process judged?
  bool HasEnded(uint32_t process) const;
  // Batches read, over all processes.
  uint64_t batches() const;
  // Stored batches of `run` that are yet to be read.
  uint64_t BatchesBehind(const RunView& run) const;
  // End was called.
  bool finished() const { return finished_; }

 private:
  struct Cursor {
    uint64_t next_batch = 0;
    std::optional<ProcessEnd> end;  // that was told to the checker
    bool assumed = false;
    std::optional<uint32_t> attempt;  // that was told to the checker
  };

  // True if the process was read or ended; sets `more` if more may be read.
  absl::StatusOr<bool> ReadShare(const RunView& run,
                                 const RunView::Process& process,
                                 RankPace* pace, bool* more);
  // Tells the checker, before anything else, of which attempt the process is.
  void Introduce(const RunView::Process& process);
  // True if an end was told.
  bool EndIfOver(const RunView::Process& process, const RankPace& pace);
  static bool IsOver(const RunView::Process& process, const RankPace& pace);
  // Is there more of it in the store?
  bool IsBehind(const RunView::Process& process) const;
  bool IsLive(const RunView::Process& process) const;
  // As things are before anything more is read.
  RankPace PaceOf(const RunView& run) const;
  // The step beyond which the process is not read now.
  uint64_t Limit(const RunView::Process& process, RankPace* pace);
  bool WaitsForItsPlace(const RunView::Process& process,
                        const RankPace& pace) const;
  void GiveUpRanks(const RunView& run, const RankPace& pace, bool at_end);

  const Store& store_;
  Checker checker_;
  std::map<uint32_t, Cursor> cursors_;  // by process
  std::set<Place> given_up_;
  bool all_read_ = false;
  bool finished_ = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_RUN_CHECK_H_
