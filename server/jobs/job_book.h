// All inference jobs: those that wait, the one that runs, and the latest of
// those that have ended. Each change of a job's status is queued for the
// store; progress is kept in memory only.
//
//   queued ──TakeNext──> running ──Done──> done
//      └────────End─────────┴─────End────> failed or cancelled
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_JOBS_JOB_BOOK_H_
#define TRAINCHECK_SERVER_JOBS_JOB_BOOK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/store/store.h"

namespace traincheck::server {

// What is answered for an id that stands for nothing that the caller may see:
// the same whether another owner has such a job or nobody.
[[nodiscard]] absl::Status NoSuchJob(const std::string& id);

class JobBook {
 public:
  using Clock = std::function<absl::Time()>;

  // Reads what the store holds. A job that ran when the daemon ended has
  // failed; those that waited wait on. `store` must outlive the book.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<JobBook>> Load(
      Store* store, Clock now = absl::Now);
  JobBook(const JobBook&) = delete;
  JobBook& operator=(const JobBook&) = delete;

  // Queues a job and returns once it is durable. ResourceExhausted, naming
  // the limit, if too many wait; Unavailable if the disk takes no writes: then
  // the job has failed.
  [[nodiscard]] absl::StatusOr<v1::Job> Add(const v1::InferRequest& request,
                                            const std::string& owner = "");

  // The oldest queued job, which is running from now on.
  std::optional<v1::Job> TakeNext();

  // Do nothing for a job that has ended.
  void Report(const std::string& id, const std::string& stage, double fraction);
  void ReportPeak(const std::string& id, uint64_t bytes);
  void End(const std::string& id, v1::JobStatus status,
           const std::string& reason);
  // The job as it will be once it is done, put into `writes` for the store...
  v1::Job Finished(const std::string& id, const v1::InferResult& result,
                   WriteSet* writes) const;
  // ... and shown, after these are durable.
  void Done(const v1::Job& finished);

  std::vector<v1::Job> List() const;  // oldest first
  // NotFound, saying what to do.
  [[nodiscard]] absl::StatusOr<v1::Job> Find(const std::string& id) const;

  struct Snapshot {
    uint64_t revision = 0;  // raised with every change
    v1::Job job;
  };
  // Waits for a revision above `after`, at most `patience`.
  [[nodiscard]] absl::StatusOr<Snapshot> Wait(const std::string& id,
                                              uint64_t after,
                                              absl::Duration patience) const;

 private:
  struct Entry {
    v1::Job job;
    uint32_t slot = 0;
    uint64_t revision = 0;
  };

  JobBook(Store* store, Clock now) : store_(*store), now_(std::move(now)) {}

  absl::Status LoadEntries() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckQueue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the oldest of those that have ended, if there are too many.
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t FreeSlot() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // nullptr: no such job, or only one that has ended.
  Entry* Open(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Entry* FindEntry(const std::string& id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Save(const Entry& entry, Store::Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndEntry(v1::JobStatus status, const std::string& reason, Entry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store& store_;
  const Clock now_;
  mutable absl::Mutex mutex_;
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by number
};

bool HasEnded(const v1::Job& job);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_JOB_BOOK_H_
