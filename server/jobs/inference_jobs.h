// Inference over stored runs, one job at a time, in a thread of the daemon.
//
// Threads: safe on any thread, except Stop, which the owner calls once.
#ifndef TRAINCHECK_SERVER_JOBS_INFERENCE_JOBS_H_
#define TRAINCHECK_SERVER_JOBS_INFERENCE_JOBS_H_

#include <deque>
#include <functional>
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
#include "inference/inference.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/runs/registry.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck {

// One request and how far it is. Shared by the worker and those who wait.
//
// Threads: safe on any thread.
class InferenceJob {
 public:
  struct Snapshot {
    uint64_t revision = 0;  // raised with every change
    std::string stage;
    double fraction = 0;
    bool done = false;
    absl::Status status;  // when done
    v1::InferResult result;
  };

  explicit InferenceJob(v1::InferRequest request)
      : request_(std::move(request)) {}

  const v1::InferRequest& request() const { return request_; }

  // Waits for a revision above `after`, at most `patience`.
  Snapshot Wait(uint64_t after, absl::Duration patience) const;

  void Report(const std::string& stage, double fraction);
  void Finish(absl::StatusOr<v1::InferResult> result);

 private:
  const v1::InferRequest request_;
  mutable absl::Mutex mutex_;
  Snapshot now_ ABSL_GUARDED_BY(mutex_);
};

class InferenceJobs {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Store* store;
    const Registry* registry;
    SetCatalog* sets;
    std::function<absl::Time()> now = absl::Now;
  };

  explicit InferenceJobs(Dependencies dependencies);
  ~InferenceJobs();
  InferenceJobs(const InferenceJobs&) = delete;
  InferenceJobs& operator=(const InferenceJobs&) = delete;

  // Queues a job. InvalidArgument, NotFound or FailedPrecondition, naming the
  // run or the set and what to do.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<InferenceJob>> Start(
      const v1::InferRequest& request);

  // Fails what is queued and waits for the running job. False if it was still
  // at work after `patience`: then only the end of the process ends it.
  bool Stop(absl::Duration patience);

 private:
  absl::Status Check(const v1::InferRequest& request) const;
  void Loop();
  absl::StatusOr<v1::InferResult> Run(InferenceJob* job);
  absl::Status Read(const RunView& run, Inference* inference);
  bool stopping() const;

  const Dependencies use_;
  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<InferenceJob>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_JOBS_INFERENCE_JOBS_H_
