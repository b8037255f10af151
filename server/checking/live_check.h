// The live check of one run: takes it up where an earlier daemon left it,
// reads, reports and saves what it finds, begins anew where what was judged no
// longer holds, and finishes or fails.
//
// The state of an unfinished check is saved every `snapshot_every`, in one
// write with the violations found up to there, so that a daemon that starts
// again goes on from there. Saving takes at most kSnapshotShare of the time:
// where it costs more, it happens less often.
//
// A run whose set is not there waits for it. Once it is saved, the run is
// checked from its first batch, also if it has ended: what a restarted daemon
// would find.
//
// A store that cannot be read for a while (Unavailable) ends no check: it goes
// on where it was.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_CHECKING_LIVE_CHECK_H_
#define TRAINCHECK_SERVER_CHECKING_LIVE_CHECK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/checking/check_queue.h"
#include "server/checking/reported_so_far.h"
#include "server/checking/run_check.h"
#include "server/checking/violation_board.h"
#include "server/plans/run_plans.h"
#include "server/runs/registry.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

class LiveCheck {
 public:
  // All must outlive the object.
  struct Dependencies {
    Store* store;
    const SetCatalog* sets;
    ViolationBoard* board;
    RunPlans* plans;  // may be null
    CheckQueue* queue;
    absl::Duration snapshot_every;
  };

  // `run_number`: of the views that all calls get.
  LiveCheck(const Dependencies& dependencies, uint64_t run_number);
  LiveCheck(const LiveCheck&) = delete;
  LiveCheck& operator=(const LiveCheck&) = delete;

  uint64_t run_number() const { return run_number_; }

  // Advances the check; true if more is to be read.
  bool Turn(const RunView& run);
  // The store could not be read in the last turn: another one tries again.
  bool is_held_up() const { return held_up_; }
  // Saves the state, unless it is saved already. What was found is, by Turn.
  void Save(const RunView& run);
  // Stored batches that are yet to be read; 0 of a check that waits for its
  // set, has failed or is finished.
  uint64_t BatchesBehind(const RunView& run) const {
    return check_ == nullptr ? 0 : check_->BatchesBehind(run);
  }
  // After a turn that left nothing to be read.
  v1::CheckProgress Progress(const RunView& run) const;
  // Is the check finished, and does the store say so? Then it is of no more
  // use: another one takes up what may come yet. The queue looks at the run
  // once more when that becomes true.
  bool IsSettled() const { return state_ == State::kFinished && *settled_; }

 private:
  enum class State {
    kNew,  // the run was not looked at yet
    kBeginning,
    kReading,
    kWaitingForSet,
    kFailed,
    kFinished,  // with all that there was at the last look
  };
  enum class From { kSnapshot, kFirstBatch };
  struct News {
    std::vector<Violation> found;
    ViolationBoard::Known known = ViolationBoard::Known::kUpdate;
    // All that this check has found, and all that was reported is judged again.
    bool is_all = false;
  };

  void TakeUp(const RunView& run);
  // Makes the check from the version of the set that the run names, or that it
  // began with, else from the newest. Where there is no snapshot that fits, it
  // begins at the first batch.
  void Begin(const RunView& run, From from);
  void BeginAnewIfMust(const RunView& run);
  // The set that the run is checked against; while there is none, it waits.
  absl::StatusOr<InvariantSet> LoadSet(const RunView& run);
  // Null: there is no snapshot that fits, which the log says.
  std::unique_ptr<RunCheck> Resume(const RunView& run, const InvariantSet& set);
  bool Read(const RunView& run);
  // Reports and saves what the check has found.
  void Report(const RunView& run);
  News TakeNews(const RunView& run);
  bool IsSnapshotDue() const;
  void AddSnapshot(const RunView& run, WriteSet* writes);
  void AddCheck(const RunView& run, WriteSet* writes) const;
  // Ends the check, unless the error is one that passes.
  void Fail(const RunView& run, const absl::Status& why);
  void Finish(const RunView& run, const std::string& before_end);

  const Dependencies use_;
  const uint64_t run_number_;
  State state_ = State::kNew;
  From from_ = From::kSnapshot;  // where it is beginning
  bool held_up_ = false;
  std::unique_ptr<RunCheck> check_;  // while it reads
  std::string error_;                // why it waits or failed
  // As in the store, or on its way there.
  stored::Check stored_;
  // By earlier checks of the run: up to there this one goes over it again.
  ReportedSoFar reported_;
  // Of the last snapshot.
  uint64_t saved_batches_ = 0;
  absl::Time next_snapshot_ = absl::InfinitePast();
  // Is `stored_` of a finished check on disk? Set by the store's thread.
  std::shared_ptr<std::atomic<bool>> settled_;
};

// As it is stored; empty if the run's check was never begun, or if what is
// stored is damaged. Unavailable if the store cannot be read now.
absl::StatusOr<stored::Check> ReadCheck(const Store& store,
                                        uint64_t run_number);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_LIVE_CHECK_H_
