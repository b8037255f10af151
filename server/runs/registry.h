// All runs and their processes: who streams, what is stored, how each ended.
// The registry decides what a stream may do, keeps the books and queues each
// change as one atomic write, a batch together with its cursor. The processes
// of a run that has ended leave memory ("shelved") and are read from the store
// when somebody asks for them.
//
// Threads: safe on any thread; callbacks run on the store's commit thread,
// without the registry's lock. The store must be closed before the registry
// is destroyed.
#ifndef TRAINCHECK_SERVER_RUNS_REGISTRY_H_
#define TRAINCHECK_SERVER_RUNS_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/runs/ingest_counts.h"
#include "server/runs/owner_use.h"
#include "server/runs/registry_options.h"
#include "server/runs/run_pins.h"
#include "server/runs/run_state.h"
#include "server/runs/run_view.h"
#include "server/store/keys.h"
#include "server/store/store.h"

namespace traincheck::server {

absl::Status NoSuchRun(const std::string& run);

class Registry {
 public:
  using Options = RegistryOptions;
  // Called once the change is in the synced store, with the cursor it has
  // there: all batches below are durable.
  using Durable = std::function<void(uint64_t next_batch)>;
  using Observer = std::function<void(const std::string& run)>;

  // Reads what the store holds. Processes whose stream was open are
  // disconnected since now.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Registry>> Load(
      Store* store, Options options);

  // `observer` is told of every run that changed, once the change is durable.
  // REQUIRES: no stream was opened yet.
  void SetObserver(Observer observer) { observer_ = std::move(observer); }
  // The same of every run that has ended.
  void SetEndObserver(Observer observer) { on_end_ = std::move(observer); }

  // What a run that asks for `asked` is checked against. Called under the
  // registry's lock: it must not call it.
  using Selector = std::function<std::string(const std::string& experiment,
                                             const std::string& owner,
                                             const std::string& asked)>;
  // Without one a run is checked against what it asks for. REQUIRES: no stream
  // was opened yet.
  void SetSelector(Selector selector) { selector_ = std::move(selector); }

  struct Opened {
    StreamId stream;
    uint64_t next_batch = 0;
    std::vector<v1::RingCursor> rings;
  };
  // Called once all that it tells is in the synced store.
  using Admitted = std::function<void(const Opened& opened)>;
  // Binds a stream to a process; one that resumes takes over from the process's
  // live stream. REQUIRES: hello is valid (hello_check.h). A run belongs to the
  // `owner` who begins it ("": the administrators, who may write every run);
  // PermissionDenied for others, and while its owner's runs take too much.
  // FailedPrecondition if the process has a live stream that this one does not
  // resume; ResourceExhausted if the run has too many processes; Unavailable
  // while it is being deleted; the store's error if it has ended long ago and
  // cannot be read.
  [[nodiscard]] absl::StatusOr<Opened> Open(const v1::Hello& hello,
                                            Admitted admitted,
                                            const std::string& owner = "");
  // Aborted, naming the process, once a newer stream has taken over.
  [[nodiscard]] absl::Status CheckStream(const StreamId& stream) const;

  enum class Fate { kStored, kDuplicate, kQuarantined };
  // Books and stores a batch, or quarantines it if `facts` is an error or it
  // overlaps what is stored. `durable` is not called for duplicates. Aborted
  // if a newer stream has taken over; PermissionDenied while the runs of its
  // owner take too much.
  [[nodiscard]] absl::StatusOr<Fate> AddBatch(
      const StreamId& stream, const v1::Batch& batch,
      const absl::StatusOr<BatchFacts>& facts, Durable durable);

  [[nodiscard]] absl::Status Report(const StreamId& stream,
                                    const v1::RingReports& reports);
  [[nodiscard]] absl::Status End(const StreamId& stream,
                                 const v1::Goodbye& goodbye, Durable durable);
  // The stream is gone; does nothing if a newer one has taken over.
  void Disconnect(const StreamId& stream);

  // Takes the run out of retention's reach, or back. NotFound.
  [[nodiscard]] absl::Status Keep(const std::string& run, bool keep);

  struct Withdrawn {
    uint64_t number = 0;
    uint64_t records = 0;
    uint64_t bytes = 0;
  };
  // Forgets an ended run that nobody reads; streams of its id wait until
  // Release. What the store holds of it is the caller's to delete. NotFound or
  // FailedPrecondition, saying who needs it.
  [[nodiscard]] absl::StatusOr<Withdrawn> Withdraw(const std::string& run,
                                                   const RunPins& pins);
  // Ends that; the run comes back if it was not deleted.
  void Release(const std::string& run, bool deleted);
  // Notes that the records of the run are gone and deletes them, in one write.
  // Errors as Withdraw; FailedPrecondition also for a run that is kept.
  [[nodiscard]] absl::StatusOr<Withdrawn> DropRecords(const std::string& run,
                                                      const RunPins& pins);

  // Lets time pass: silent processes become lost, runs end, those that ended
  // are shelved. To be called several times a second.
  void Tick();

  // Runs that have not ended, without their processes.
  std::vector<RunningRun> RunningRuns() const;
  // NotFound, or the store's error where the run is shelved.
  [[nodiscard]] absl::StatusOr<v1::Run> Run(const std::string& id) const;
  [[nodiscard]] absl::StatusOr<RunView> View(const std::string& id) const;
  // The runs that are asked for, in the order in which they started. NotFound
  // if `before` names no run, or none of the owners asked for.
  [[nodiscard]] absl::StatusOr<std::vector<std::string>> Find(
      const RunQuery& query) const;
  // nullopt: it is not known.
  std::optional<RunOutline> OutlineOf(const std::string& id) const;
  // Whose the run is, also while it is withdrawn, and its number in the store.
  std::optional<std::string> OwnerOf(const std::string& id) const;
  std::optional<uint64_t> NumberOf(const std::string& id) const;
  std::vector<std::string> RunIds() const;
  // What retention goes by, of every run.
  std::vector<RunUse> Uses() const;
  // Runs whose processes are in memory.
  size_t RunsInMemory() const;
  uint64_t quarantined_batches() const;
  // Since Load.
  const IngestCounts& counts() const { return counts_; }

 private:
  Registry(Store* store, Options options)
      : store_(*store),
        options_(std::move(options)),
        use_of_owners_(options_.owner_bytes) {}

  static void PutRun(const RunState& run, WriteSet* writes);
  static RunView::Process ViewOf(const ProcessEntry& process,
                                 std::string reason);
  // The run, if nothing and nobody holds on to it.
  absl::StatusOr<RunState*> AtRest(const std::string& run, const RunPins& pins)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LoadRuns() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LoadProcesses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The run with its processes, as it is until the lock is released: from
  // `*read` if it is shelved.
  absl::StatusOr<const RunState*> Whole(const std::string& id,
                                        RunState* read) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Brings its processes back, for somebody who changes them.
  absl::Status TakeOffShelf(RunState* run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShelveWhatRests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MarkRunning(RunState* run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::string SelectionFor(const v1::Hello& hello, const RunState& state) const;
  RunState& FindOrMakeRun(const v1::Hello& hello, const std::string& owner,
                          WriteSet* writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ProcessEntry*> AddProcess(const v1::Hello& hello,
                                           RunState* run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Quarantine(const BatchId& id, const absl::Status& reason,
                  std::string batch, ProcessEntry* process, WriteSet* writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Something came from a process that counted as ended.
  void Reopen(RunState* run, ProcessEntry* process, WriteSet* writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The process has told what it is: finds its attempt and who else holds its
  // place. `before`: its books before that.
  void SettlePlace(RunState* run, const stored::Process& before,
                   ProcessEntry* process, WriteSet* writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those whose owner the process is are in its attempt.
  void TakeWorkersAlong(RunState* run, const ProcessEntry& owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends it if it was silent for too long. REQUIRES: it is disconnected.
  void EndIfSilent(RunState* run, const Starts& newest, ProcessEntry* process)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateConflict(const RunState& run, ProcessEntry* process)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndRunIfDue(RunState* run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct StreamOwner {
    RunState* run;
    ProcessEntry* process;
  };
  // What the stream writes, or Aborted.
  absl::StatusOr<StreamOwner> Writer(const StreamId& stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: it was deleted since, and its id may be another run's.
  RunState* FindRun(const std::string& id, uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues `writes` together with the state of the process.
  void WriteProcess(RunState* run, const ProcessEntry& process, WriteSet writes,
                    Durable durable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // AddBatch, not counted.
  absl::StatusOr<Fate> TakeBatch(const StreamId& stream, const v1::Batch& batch,
                                 const absl::StatusOr<BatchFacts>& facts,
                                 Durable durable);
  // Counts a batch of `bytes` as waiting until it is called, and the time.
  Durable Timed(uint64_t bytes, Durable durable);
  // Counts what is missing of `process` and was not before.
  void CountMissing(const MissingRecords& was, const stored::Process& process);

  Store& store_;
  const Options options_;
  IngestCounts counts_;
  Observer observer_;
  Observer on_end_;
  Selector selector_;
  mutable absl::Mutex mutex_;
  std::map<std::string, RunState> runs_ ABSL_GUARDED_BY(mutex_);
  // Ids. Those that have ended and are not shelved rest.
  std::set<std::string> not_ended_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> resting_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, RunState> withdrawn_ ABSL_GUARDED_BY(mutex_);  // by id
  OwnerUse use_of_owners_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_run_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_stream_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t quarantined_batches_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_REGISTRY_H_
