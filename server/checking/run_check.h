// The check of one run: feeds a Checker from the store by cursor. A live
// check and one after a restart are the same; both begin at the first batch.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_CHECKING_RUN_CHECK_H_
#define TRAINCHECK_SERVER_CHECKING_RUN_CHECK_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "checker/checker.h"
#include "server/runs/registry.h"
#include "server/store/store.h"

namespace traincheck {

class RunCheck {
 public:
  // `store` must outlive the check.
  RunCheck(const Store* store, const RunView& run, const InvariantSet& set);

  // Does the run go on from where this check is? False if something came that
  // was judged to be over: the check must begin anew.
  bool Fits(const RunView& run) const;

  // Reads a share of what is stored beyond the cursors, from every process in
  // turn. True if more is there. REQUIRES: Fits(run).
  [[nodiscard]] absl::StatusOr<bool> Advance(const RunView& run);

  std::vector<Violation> TakeChanges() { return checker_.TakeChanges(); }
  CheckSummary Summary() const { return checker_.Summary(); }
  // The run has ended and every window is judged.
  bool finished() const { return finished_; }

 private:
  struct Cursor {
    uint64_t next_batch = 0;
    bool ended = false;
  };

  // True if more is there.
  absl::StatusOr<bool> ReadShare(const RunView& run,
                                 const RunView::Process& process,
                                 Cursor* cursor);

  const Store& store_;
  Checker checker_;
  std::map<uint32_t, Cursor> cursors_;  // by process
  bool finished_ = false;
};

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_CHECKING_RUN_CHECK_H_
