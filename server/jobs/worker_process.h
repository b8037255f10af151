// The process of one inference job, from outside: starts it, talks to it,
// knows how much memory it takes and says how it ended.
//
// Threads: Kill on any thread; all else on the thread that called Start. That
// thread must live as long as the process: the kernel ends the process with
// it.
#ifndef TRAINCHECK_SERVER_JOBS_WORKER_PROCESS_H_
#define TRAINCHECK_SERVER_JOBS_WORKER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/jobs/message_channel.h"

namespace traincheck::server {

class WorkerProcess {
 public:
  struct Options {
    uint64_t memory_bytes = 0;
    // Called when the memory that it takes has grown.
    std::function<void(uint64_t)> on_peak;
    // Its program; takes what a worker takes (inference_worker.h).
    std::string program = "/proc/self/exe";
  };

  [[nodiscard]] static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(
      Options options);
  // Kills it if it has not ended.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  MessageChannel& channel() { return *channel_; }

  // Does nothing once it has ended.
  void Kill();

  // Waits for its end and says in words how that was: "its process was killed
  // by signal 9 ...". To be called once.
  std::string AwaitEnd();

  // Its largest resident memory: what it says itself, and a look at it, which
  // is also taken while the channel waits.
  void NotePeak(uint64_t bytes);
  void MeasurePeak();

 private:
  WorkerProcess(Options options, pid_t pid)
      : options_(std::move(options)), pid_(pid) {}

  std::string Describe(int status) const;

  const Options options_;
  uint64_t peak_bytes_ = 0;
  absl::Mutex mutex_;
  pid_t pid_ ABSL_GUARDED_BY(mutex_);  // 0: reaped
  std::unique_ptr<MessageChannel> channel_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_WORKER_PROCESS_H_
