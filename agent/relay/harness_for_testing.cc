#include "agent/relay/harness_for_testing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

namespace traincheck::agent {
namespace {

constexpr char kRelay[] = "agent/relay/traincheck-relay";
constexpr char kWriter[] = "agent/relay/writer_for_testing";
constexpr int kListener = 3;
constexpr int kInherited = 50;

sockaddr_un Abstract(const std::string& name, socklen_t* size) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

int Listen(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  socklen_t size;
  const sockaddr_un address = Abstract(name, &size);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(fd, 16), 0);
  return fd;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& text : *strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

RelayProcess::RelayProcess(const std::string& folder,
                           const Environment& environment)
    : stderr_path_(folder + "/relay.stderr") {
  // Tests in sandboxes share abstract names, but not process ids.
  std::random_device random;
  socket_name_ = "traincheck-test-" + std::to_string(random()) + "-" +
                 std::to_string(random());
  const UniqueFd listener(Listen(socket_name_));
  int pipe_ends[2];
  EXPECT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  pipe_ = UniqueFd(pipe_ends[0]);
  const UniqueFd write_end(pipe_ends[1]);
  std::vector<std::string> variables;
  if (environment.count("TRAINCHECK_SPOOL_DIR") == 0) {
    variables.push_back("TRAINCHECK_SPOOL_DIR=" + folder + "/spool");
  }
  for (const auto& [name, value] : environment) {
    variables.push_back(name + "=" + value);
  }
  const std::vector<char*> envp = Pointers(&variables);
  const std::string relay = kRelay;
  pid_ = fork();
  if (pid_ != 0) return;
  // As the agent: nothing on 0 and 1, the listener as 3. Whatever else the
  // training process has open comes along.
  setsid();
  const int null = open("/dev/null", O_RDWR);
  const int errors =
      open(stderr_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(write_end.get(), kInherited);
  const int high = fcntl(listener.get(), F_DUPFD, 60);
  dup2(null, 0);
  dup2(null, 1);
  dup2(errors, 2);
  dup2(high, kListener);
  const char* const argv[] = {relay.c_str(), nullptr};
  execve(argv[0], const_cast<char* const*>(argv), envp.data());
  _exit(127);
}

RelayProcess::~RelayProcess() {
  if (!running()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<int> RelayProcess::Wait(std::chrono::milliseconds within) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!status_.has_value()) {
    int status = 0;
    if (wait4(pid_, &status, WNOHANG, &usage_) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    } else if (std::chrono::steady_clock::now() >= end) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return status_;
}

std::chrono::microseconds RelayProcess::cpu_time() const {
  using std::chrono::microseconds;
  using std::chrono::seconds;
  return seconds(usage_.ru_utime.tv_sec + usage_.ru_stime.tv_sec) +
         microseconds(usage_.ru_utime.tv_usec + usage_.ru_stime.tv_usec);
}

std::string RelayProcess::Stderr() const {
  std::stringstream text;
  text << std::ifstream(stderr_path_).rdbuf();
  return text.str();
}

bool RelayProcess::HoldsStderr() const {
  char target[4096];
  const std::string link = "/proc/" + std::to_string(pid_) + "/fd/2";
  const ssize_t size = readlink(link.c_str(), target, sizeof target);
  EXPECT_GT(size, 0);
  return std::string(target, static_cast<size_t>(size)) != "/dev/null";
}

WriterProcess::WriterProcess(const std::string& socket_name) {
  int in[2], out[2];
  EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
  const std::string writer = kWriter;
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    execl(writer.c_str(), writer.c_str(), socket_name.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  in_ = UniqueFd(in[1]);
  out_ = UniqueFd(out[0]);
  EXPECT_EQ(ReadLine(), "ready");
}

WriterProcess::~WriterProcess() {
  if (pid_ > 0) Kill();
}

std::string WriterProcess::Do(const std::string& command) {
  const std::string line = command + "\n";
  EXPECT_EQ(write(in_.get(), line.data(), line.size()),
            static_cast<ssize_t>(line.size()));
  return ReadLine();
}

std::string WriterProcess::ReadLine() {
  std::string line;
  char byte;
  while (read(out_.get(), &byte, 1) == 1 && byte != '\n') line += byte;
  return line;
}

void WriterProcess::End() {
  in_.Close();
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  EXPECT_EQ(status, 0);
  pid_ = -1;
}

void WriterProcess::Kill() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

UniqueFd ConnectTo(const std::string& socket_name) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t size;
  const sockaddr_un address = Abstract(socket_name, &size);
  EXPECT_EQ(
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  return fd;
}

}  // namespace traincheck::agent
