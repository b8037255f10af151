// What the daemon does with a job's process: feeds it the stored batches of
// the runs and takes the set that it answers with.
//
// Threads: the one that started the process.
#ifndef TRAINCHECK_SERVER_JOBS_LEARNING_SESSION_H_
#define TRAINCHECK_SERVER_JOBS_LEARNING_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "invariants/rules/invariant.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/jobs/worker.pb.h"
#include "server/jobs/worker_process.h"
#include "server/runs/registry.h"
#include "server/store/store.h"

namespace traincheck::server {

class LearningSession {
 public:
  using Progress =
      std::function<void(const std::string& stage, double fraction)>;
  struct Learned {
    InvariantSet set;  // without name, runs and time
    std::map<std::string, uint32_t> dropped;
  };

  // All must outlive the session.
  LearningSession(const Store* store, WorkerProcess* process, Progress progress)
      : store_(*store), process_(*process), progress_(std::move(progress)) {}

  // An error says why the job failed; the process is of no use then.
  [[nodiscard]] absl::StatusOr<Learned> Learn(const std::vector<RunView>& runs,
                                              const v1::InferRequest& request);

 private:
  absl::Status Feed(const std::vector<RunView>& runs,
                    const v1::InferRequest& request);
  absl::Status FeedRun(const RunView& run);
  absl::Status FeedProcess(const RunView& run, const RunView::Process& process);
  void ReportReading(const RunView& run);
  absl::StatusOr<Learned> TakeAnswer();
  // Why the process does not go on: what it said, or how it ended.
  absl::Status WhyGone();

  const Store& store_;
  WorkerProcess& process_;
  const Progress progress_;
  uint64_t batches_ = 0;  // to feed in all
  uint64_t fed_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_LEARNING_SESSION_H_
