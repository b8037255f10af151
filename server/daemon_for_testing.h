// The real daemon as a process, and a relay's side of one stream, for tests.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_DAEMON_FOR_TESTING_H_
#define TRAINCHECK_SERVER_DAEMON_FOR_TESTING_H_

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/traincheck/v1/control.grpc.pb.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"

namespace traincheck::server {

inline constexpr auto kPoll = std::chrono::milliseconds(10);
inline constexpr auto kPatience = std::chrono::seconds(60);

// Polls until `condition` holds; false after kPatience.
bool WaitUntil(const std::function<bool()>& condition);

// What one process sends that trains a small model for 40 steps.
std::vector<v1::Batch> TrainingBatches();

// traincheckd on a data directory of its own.
class DaemonProcess {
 public:
  explicit DaemonProcess(std::string folder) : folder_(std::move(folder)) {}
  // Kills what still runs.
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  pid_t Spawn(std::vector<std::string> arguments);
  // Returns once it listens.
  void Start(const std::vector<std::string>& more = {});
  // The soft limit, for the next Spawn; `hard`: the hard one too.
  void LimitOpenFiles(rlim_t files, bool hard = false) {
    open_files_ = files;
    hard_limit_ = hard;
  }
  void LimitFileSize(rlim_t bytes);
  void Signal(int number);
  // The exit code, or minus the signal.
  int Wait();
  void Kill();

  pid_t pid() const { return pid_; }
  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> Channel() const;
  std::unique_ptr<v1::Control::Stub> Control() const;
  // A number of /proc/PID/status: "VmRSS" (KiB), "Threads".
  uint64_t StatusNumber(const std::string& name) const;

 private:
  const std::string folder_;
  pid_t pid_ = 0;
  rlim_t open_files_ = 0;
  bool hard_limit_ = false;
  std::string address_;
};

// A relay's side of one stream.
class TestRelay {
 public:
  explicit TestRelay(const std::shared_ptr<grpc::Channel>& channel);
  ~TestRelay() { context_.TryCancel(); }
  TestRelay(const TestRelay&) = delete;
  TestRelay& operator=(const TestRelay&) = delete;

  v1::Welcome Greet(const v1::Hello& hello);
  bool Send(const v1::IngestRequest& request);
  v1::IngestReply Receive();
  // False if the stream ended before.
  bool AwaitAcknowledged(uint64_t next_batch);
  // Reads until the end.
  grpc::Status End();
  grpc::Status Leave(v1::EndKind end, const std::vector<v1::RingReport>& rings);

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Ingest::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::IngestRequest, v1::IngestReply>>
      stream_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_DAEMON_FOR_TESTING_H_
