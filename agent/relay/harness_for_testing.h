// Starts the real relay the way the agent does, and writers that play the
// training process.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_AGENT_RELAY_HARNESS_FOR_TESTING_H_
#define TRAINCHECK_AGENT_RELAY_HARNESS_FOR_TESTING_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "agent/relay/unique_fd.h"

namespace traincheck::agent {

using Environment = std::map<std::string, std::string>;

class RelayProcess {
 public:
  // `folder` gets what it writes on stderr, behind what is there, and its
  // spool unless the environment has TRAINCHECK_SPOOL_DIR ("": not set).
  RelayProcess(const std::string& folder, const Environment& environment);
  // Kills it if it still runs.
  ~RelayProcess();
  RelayProcess(const RelayProcess&) = delete;
  RelayProcess& operator=(const RelayProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Name of the abstract socket on which it listens.
  const std::string& socket_name() const { return socket_name_; }
  // Its exit status, as soon as it ends; nothing if it does not in time.
  std::optional<int> Wait(std::chrono::milliseconds within);
  bool running() { return !Wait(std::chrono::milliseconds(0)).has_value(); }
  // CPU time that it had used when it ended.
  std::chrono::microseconds cpu_time() const;
  std::string Stderr() const;
  // Does its stderr still go where the training's goes?
  bool HoldsStderr() const;
  // Readable with the end of file once the relay has closed the descriptors
  // that it inherited.
  int inherited_pipe() const { return pipe_.get(); }

 private:
  const std::string stderr_path_;
  std::string socket_name_;
  pid_t pid_ = -1;
  UniqueFd pipe_;
  std::optional<int> status_;
  rusage usage_ = {};
};

// What a writer says of itself, as a name of a file of earlier relays has it.
inline constexpr char kImageOfWriter[] = "0123456789abcdef";

class WriterProcess {
 public:
  explicit WriterProcess(const std::string& socket_name);
  // Kills it if it still runs.
  ~WriterProcess();
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Gives a command (writer_for_testing_main.cc) and returns the answer.
  std::string Do(const std::string& command);
  // Both wait for its end.
  void End();
  void Kill();

 private:
  std::string ReadLine();

  pid_t pid_ = -1;
  UniqueFd in_;
  UniqueFd out_;
};

// A connected socket to a relay, to send what no agent would.
UniqueFd ConnectTo(const std::string& socket_name);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_HARNESS_FOR_TESTING_H_
