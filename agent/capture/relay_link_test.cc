// Who may sit at the address of a relay that has died.
#include "agent/capture/relay_link.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "gtest/gtest.h"

namespace traincheck::agent {
namespace {

constexpr uid_t kNobody = 65534;
constexpr int kPatienceMs = 20'000;

// Runs `body` in a child; its result is the exit code.
pid_t Fork(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

int ExitCode(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A sandbox may have one user only.
bool MayBe(uid_t user) {
  return ExitCode(Fork([&] { return setresuid(user, user, user); })) == 0;
}

// A process that takes the address, as `user`.
class Squatter {
 public:
  Squatter(const std::string& address, uid_t user) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = Fork([&] {
      if (geteuid() != user && setresuid(user, user, user) != 0) return 1;
      return Listen(address, ready[1]);
    });
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the address was not free";
    close(ready[0]);
  }

  // What a connection brought: bytes, or 0 for its end.
  int Received() { return ExitCode(pid_); }

 private:
  static int Listen(const std::string& address, int ready) {
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, address.data(), address.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                             address.size());
    const auto* where = reinterpret_cast<const sockaddr*>(&name);
    if (bind(listener, where, size) != 0 || listen(listener, 8) != 0) return 2;
    if (write(ready, "x", 1) != 1) return 3;
    pollfd wait = {listener, POLLIN, 0};
    if (poll(&wait, 1, kPatienceMs) != 1) return 4;
    const int peer = accept(listener, nullptr, nullptr);
    char bytes[64];
    return static_cast<int>(recv(peer, bytes, sizeof bytes, 0));
  }

  pid_t pid_;
};

// A link whose relay is dead: /bin/true ends at once.
void StartAndLose(RelayLink* link) {
  ASSERT_EQ(link->Start("/bin/true"), "");
  for (int i = 0; i < kPatienceMs / 10; ++i) {
    if (link->state() == RelayLink::State::kDead) return;
    poll(nullptr, 0, 10);
  }
  FAIL() << "the relay does not end";
}

// A child joins and hands a ring over; what the squatter has got by then.
int HandedTo(RelayLink* dead, uid_t user) {
  Squatter squatter(dead->address(), user);
  const auto ring = RingWriter::Create(1, kOverflowRingBytes);
  RelayLink child;
  EXPECT_NE(child.Join(*dead), "");
  child.HandOver(ring.get());
  return squatter.Received();
}

TEST(RelayLinkTest, NothingGoesToAnotherProcessOfTheUser) {
  RelayLink dead;
  StartAndLose(&dead);
  EXPECT_EQ(HandedTo(&dead, geteuid()), 0);
}

TEST(RelayLinkTest, NothingGoesToAnotherUser) {
  if (!MayBe(kNobody)) GTEST_SKIP() << "nobody can be two users here";
  RelayLink dead;
  StartAndLose(&dead);
  EXPECT_EQ(HandedTo(&dead, kNobody), 0);
}

// From a pid namespace below, processes outside have no number.
TEST(RelayLinkTest, NothingGoesToAnotherUserWhosePidCannotBeSeen) {
  RelayLink dead;
  StartAndLose(&dead);
  if (!MayBe(kNobody) || ExitCode(Fork([] { return unshare(CLONE_NEWPID); }))) {
    GTEST_SKIP() << "no pid namespace can be made here";
  }
  Squatter squatter(dead.address(), kNobody);
  const pid_t outer = Fork([&] {
    if (unshare(CLONE_NEWPID) != 0) return 2;
    return ExitCode(Fork([&] {
      RelayLink child;
      return child.Join(dead).empty() ? 1 : 0;
    }));
  });
  EXPECT_EQ(ExitCode(outer), 0);
  EXPECT_EQ(squatter.Received(), 0);
}

TEST(RelayLinkTest, AddressWhereNobodyIsAnswersNothing) {
  RelayLink dead, child;
  StartAndLose(&dead);
  EXPECT_NE(child.Join(dead), "");
  EXPECT_EQ(child.state(), RelayLink::State::kDead);
}

}  // namespace
}  // namespace traincheck::agent
