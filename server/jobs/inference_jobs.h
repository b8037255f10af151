// Inference over stored runs: a queue of jobs, one at a time, each in a
// process of its own with a memory limit. The daemon feeds the process from
// the store and stores the set that it answers with; whatever becomes of the
// process, the daemon goes on and the job says why it failed.
//
// Threads: safe on any thread, except Stop, which the owner calls once.
#ifndef TRAINCHECK_SERVER_JOBS_INFERENCE_JOBS_H_
#define TRAINCHECK_SERVER_JOBS_INFERENCE_JOBS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/jobs/job_book.h"
#include "server/jobs/learning_session.h"
#include "server/jobs/worker_process.h"
#include "server/runs/registry.h"
#include "server/runs/run_pins.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

class InferenceJobs {
 public:
  // All pointers must outlive the object.
  struct Dependencies {
    Store* store;
    const Registry* registry;
    SetCatalog* sets;
    RunPins* pins;
    uint64_t memory_bytes;  // of a job's process
    std::string worker_program = "/proc/self/exe";
    std::function<absl::Time()> now = absl::Now;
  };

  // Goes on with the jobs that the store holds.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<InferenceJobs>> Open(
      Dependencies dependencies);
  ~InferenceJobs();
  InferenceJobs(const InferenceJobs&) = delete;
  InferenceJobs& operator=(const InferenceJobs&) = delete;

  // Queues a job, whose set will belong to `owner` (SetCatalog::Save).
  // InvalidArgument, NotFound, FailedPrecondition, PermissionDenied or
  // ResourceExhausted, naming the run, the set or the limit and what to do.
  [[nodiscard]] absl::StatusOr<v1::Job> Start(const v1::InferRequest& request,
                                              const std::string& owner = "");

  // The job as it is once cancelling has begun; one that waited is cancelled
  // durably. A job that has ended, or whose set is being stored, stays as it
  // is. NotFound; Unavailable if the disk takes no writes.
  [[nodiscard]] absl::StatusOr<v1::Job> Cancel(const std::string& id);

  const JobBook& book() const { return *book_; }

  // Kills the running job; what waits goes on with the next daemon. False if
  // the thread was still at work after `patience`: then only the end of the
  // process ends it.
  bool Stop(absl::Duration patience);

 private:
  // The job that is running.
  struct Running {
    std::string id;
    WorkerProcess* process = nullptr;  // while there is one
    bool cancelled = false;
    bool saving = false;  // too late to cancel
  };

  InferenceJobs(Dependencies dependencies, std::unique_ptr<JobBook> book);

  absl::Status Check(const v1::InferRequest& request) const;
  std::vector<RunPins::Pin> Hold(const v1::InferRequest& request) const;
  void Loop();
  void Execute(const v1::Job& job);
  absl::StatusOr<LearningSession::Learned> LearnInProcess(const v1::Job& job);
  absl::Status SaveSet(const v1::Job& job, LearningSession::Learned learned);
  absl::StatusOr<std::vector<RunView>> Views(const v1::Job& job) const;
  // False: another job runs, and this one has ended; not durable yet.
  bool CancelRunning(const std::string& id);
  void Failed(const v1::Job& job, const absl::Status& why);
  // False if the job was cancelled or is to stop. Otherwise Cancel and Stop
  // kill `process` from now on, until Detach.
  bool Attach(WorkerProcess* process);
  // False as above; otherwise it is too late for Cancel from now on.
  bool Detach();

  const Dependencies use_;
  const std::unique_ptr<JobBook> book_;
  absl::Mutex mutex_;
  Running running_ ABSL_GUARDED_BY(mutex_);
  // By job: its runs are not deleted before it has ended.
  std::map<std::string, std::vector<RunPins::Pin>> pins_
      ABSL_GUARDED_BY(mutex_);
  bool new_job_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_INFERENCE_JOBS_H_
