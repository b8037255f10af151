#include "agent/relay/relay_start_for_testing.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace traincheck::agent {
namespace {

constexpr int kListener = 3;

int Listen(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const socklen_t size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const bool listens =
      bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      listen(fd, 16) == 0;
  return listens ? fd : -1;
}

}  // namespace

pid_t StartRelayAsAgent(const std::string& program,
                        const std::string& socket_name, int start) {
  const int listener = Listen(socket_name);
  if (listener < 0) return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    const int high = fcntl(listener, F_DUPFD, 60);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(high, kListener);
    setenv("TRAINCHECK_RELAY_START", std::to_string(start).c_str(), 1);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(127);
  }
  close(listener);
  return pid;
}

}  // namespace traincheck::agent
