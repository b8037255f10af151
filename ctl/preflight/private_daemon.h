// A traincheckd for one training alone: a child with a temporary folder that
// nobody else may look into, on a port of loopback that the system chooses. Its
// log stays in the folder.
//
// Threads: the main thread only. Starts before there is any other.
#ifndef TRAINCHECK_CTL_PREFLIGHT_PRIVATE_DAEMON_H_
#define TRAINCHECK_CTL_PREFLIGHT_PRIVATE_DAEMON_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "ctl/preflight/temporary_folder.h"
#include "ctl/run/training_process.h"

namespace traincheck::ctl {

class PrivateDaemon {
 public:
  // Returns once it takes connections. NotFound: this installation has none.
  // Cancelled: a signal asked this program to end; *ended_by says which. Else
  // the message has the end of its log.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(
      const TrainingSignals& signals, int* ended_by);
  // Ends it and removes the folder.
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  const std::string& address() const { return address_; }
  // Where the training's records may wait.
  std::string spool_folder() const { return folder_->Path("spool"); }

 private:
  explicit PrivateDaemon(std::unique_ptr<TemporaryFolder> folder)
      : folder_(std::move(folder)) {}
  absl::Status Spawn(const std::string& program,
                     const TrainingSignals& signals);
  absl::Status WaitForAddress(const TrainingSignals& signals, int* ended_by);
  bool Ended();
  std::string EndOfLog() const;

  const std::unique_ptr<TemporaryFolder> folder_;
  std::string address_;
  pid_t pid_ = -1;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_PREFLIGHT_PRIVATE_DAEMON_H_
