#include "agent/capture/relay_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace {
bool g_first_of_container = false;
bool g_keeper_dies = false;
}  // namespace

// In place of libc's, so that this process may be the first of a container, and
// its keeper be killed before the relay is started.
extern "C" pid_t getpid() noexcept {
  if (g_first_of_container) return 1;
  return static_cast<pid_t>(syscall(SYS_getpid));
}
extern "C" pid_t setsid() noexcept {
  if (g_keeper_dies) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  return static_cast<pid_t>(syscall(SYS_setsid));
}

namespace traincheck::agent {
namespace {

class RelayProcessTest : public testing::Test {
 protected:
  RelayProcessTest() : socket_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    g_first_of_container = true;
  }
  ~RelayProcessTest() override {
    g_first_of_container = g_keeper_dies = false;
    close(socket_);
  }

  int socket_;
};

TEST_F(RelayProcessTest, TheFirstOfAContainerStartsIt) {
  EXPECT_EQ(StartRelay("/bin/true", socket_, 1), 0);
  EXPECT_EQ(StartRelay("/no/such/program", socket_, 1), ENOENT);
}

TEST_F(RelayProcessTest, AKeeperThatIsKilledIsNotWaitedFor) {
  g_keeper_dies = true;
  EXPECT_EQ(StartRelay("/bin/true", socket_, 1), ECHILD);
}

}  // namespace
}  // namespace traincheck::agent
