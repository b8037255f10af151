#include "agent/ring/ring_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "proto/record_format.h"

namespace traincheck::agent {
namespace {

constexpr uint64_t kSmall = 4096;

// The reader's view of a ring, without the reader's code.
class View {
 public:
  explicit View(const RingWriter& ring) : View(ring.fd(), ring.handover()) {}
  View(int fd, const RingHandover& handover)
      : bytes_(kRingHeaderBytes + handover.capacity_bytes),
        address_(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {
    EXPECT_NE(address_, MAP_FAILED);
  }
  ~View() { munmap(address_, bytes_); }

  RingHeader& header() { return *static_cast<RingHeader*>(address_); }
  const char* At(uint64_t position) {
    return static_cast<char*>(address_) + kRingHeaderBytes +
           position % header().capacity_bytes;
  }

  // Values of all marks up to head; gives their space back.
  std::vector<uint64_t> TakeMarks() {
    std::vector<uint64_t> values;
    const uint64_t head = header().head.load();
    uint64_t at = header().tail.load();
    while (at < head) {
      MarkRecord mark;
      std::memcpy(&mark, At(at), sizeof(RecordHeader));
      if (mark.header.type == static_cast<uint8_t>(RecordType::kMark)) {
        std::memcpy(&mark, At(at), sizeof mark);
        values.push_back(mark.value);
      }
      types_.push_back(mark.header.type);
      if (mark.header.size_bytes < sizeof(RecordHeader)) {
        ADD_FAILURE() << "torn record at " << at;
        break;
      }
      at += mark.header.size_bytes;
    }
    EXPECT_EQ(at, head);
    header().tail.store(at);
    return values;
  }
  // Types of all records taken.
  const std::vector<uint8_t>& types() const { return types_; }

 private:
  const size_t bytes_;
  void* const address_;
  std::vector<uint8_t> types_;
};

MarkRecord Mark(uint64_t value) {
  MarkRecord mark = {};
  mark.header = {sizeof mark, static_cast<uint8_t>(RecordType::kMark), 0, 0};
  mark.value = value;
  return mark;
}

bool Append(RingWriter& ring, uint64_t value) {
  const MarkRecord mark = Mark(value);
  return ring.Append(&mark, sizeof mark);
}

TEST(RingWriter, HeaderSaysWhatTheHandoverSays) {
  auto ring = RingWriter::Create(5, kSmall);
  ASSERT_NE(ring, nullptr);
  View view(*ring);
  const RingHandover handover = ring->handover();
  EXPECT_EQ(handover.magic, kRingMagic);
  EXPECT_EQ(handover.version, kRingVersion);
  EXPECT_EQ(handover.ring, 5u);
  EXPECT_EQ(handover.capacity_bytes, kSmall);
  EXPECT_EQ(handover.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(view.header().magic, kRingMagic);
  EXPECT_EQ(view.header().tid, handover.tid);
}

TEST(RingWriter, FileCannotShrink) {
  auto ring = RingWriter::Create(1, kSmall);
  ASSERT_NE(ring, nullptr);
  EXPECT_NE(ftruncate(ring->fd(), 0), 0);
}

TEST(RingWriter, RecordsComeBackInOrderOverManyRounds) {
  auto ring = RingWriter::Create(1, kSmall);
  View view(*ring);
  uint64_t next = 0;
  for (int round = 0; round < 100; ++round) {
    const uint64_t first = next;
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(Append(*ring, next++));
    const std::vector<uint64_t> values = view.TakeMarks();
    ASSERT_EQ(values.size(), 100u);
    EXPECT_EQ(values.front(), first);
    EXPECT_EQ(values.back(), next - 1);
  }
  EXPECT_EQ(view.header().committed_records.load(), next);
  EXPECT_TRUE(ring->drained());
}

TEST(RingWriter, PadsAtTheEnd) {
  auto ring = RingWriter::Create(1, kSmall);  // 170 marks and 16 bytes
  View view(*ring);
  for (int i = 0; i < 170; ++i) ASSERT_TRUE(Append(*ring, i));
  view.TakeMarks();
  ASSERT_TRUE(Append(*ring, 170));
  EXPECT_EQ(view.header().head.load(), kSmall + sizeof(MarkRecord));
  EXPECT_EQ(view.TakeMarks(), std::vector<uint64_t>{170});
  EXPECT_EQ(view.types()[170], static_cast<uint8_t>(RecordType::kPadding));
  EXPECT_EQ(view.header().committed_records.load(), 171u);
}

TEST(RingWriter, FullRingDropsCountsAndReports) {
  auto ring = RingWriter::Create(1, kSmall);
  View view(*ring);
  int committed = 0;
  while (Append(*ring, committed)) ++committed;
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(Append(*ring, 1000));
  EXPECT_EQ(ring->dropped_records(), 10u);
  EXPECT_EQ(view.header().offered_records.load(),
            view.header().committed_records.load() +
                view.header().dropped_records.load());

  EXPECT_EQ(view.TakeMarks().size(), static_cast<size_t>(committed));
  const uint64_t at = view.header().head.load();
  ASSERT_TRUE(Append(*ring, 7));
  EXPECT_EQ(view.TakeMarks(), std::vector<uint64_t>{7});
  DropsRecord drops;
  const uint64_t padded = at % kSmall + sizeof drops > kSmall
                              ? (at + kSmall - 1) / kSmall * kSmall
                              : at;
  std::memcpy(&drops, view.At(padded), sizeof drops);
  EXPECT_EQ(drops.header.type, static_cast<uint8_t>(RecordType::kDrops));
  EXPECT_EQ(drops.dropped_records, 10u);
  EXPECT_EQ(view.header().offered_records.load(),
            view.header().committed_records.load() +
                view.header().dropped_records.load());
}

TEST(RingWriter, TryAppendThatFailsIsNotOffered) {
  auto ring = RingWriter::Create(0, kSmall);
  View view(*ring);
  const MarkRecord mark = Mark(1);
  uint64_t committed = 0;
  while (ring->TryAppend(&mark, sizeof mark)) ++committed;
  EXPECT_EQ(view.header().offered_records.load(), committed);
  EXPECT_EQ(view.header().dropped_records.load(), 0u);
}

TEST(RingWriter, NonsenseTailIsAFullRing) {
  auto ring = RingWriter::Create(1, kSmall);
  View view(*ring);
  while (Append(*ring, 1)) {
  }
  view.header().tail.store(~uint64_t{0} - 7);
  EXPECT_FALSE(Append(*ring, 2));
}

TEST(RingWriter, ForkedChildDoesNotHaveTheMemory) {
  auto ring = RingWriter::Create(1, kSmall);
  ASSERT_TRUE(Append(*ring, 1));
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    Append(*ring, 2);  // must not reach the parent's ring
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  View view(*ring);
  EXPECT_EQ(view.TakeMarks(), std::vector<uint64_t>{1});
}

// Sends a ring's file over `socket`, then writes until it is killed.
[[noreturn]] void WriteUntilKilled(int socket) {
  auto ring = RingWriter::Create(1, 64u << 10);
  if (ring == nullptr) _exit(1);
  const RingHandover handover = ring->handover();
  iovec data = {const_cast<RingHandover*>(&handover), sizeof handover};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = ring->fd();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  if (sendmsg(socket, &message, 0) < 0) _exit(1);
  uint64_t value = 0;
  while (true) {
    if (Append(*ring, value)) ++value;
  }
}

int ReceiveRing(int socket, RingHandover* handover) {
  iovec data = {handover, sizeof *handover};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) <= 0) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

// Property: everything committed is readable and whole, whenever the writer
// is killed.
TEST(RingWriter, SurvivesKillOfItsWriter) {
  uint64_t total = 0;
  for (int kill_number = 0; kill_number < 120; ++kill_number) {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    const pid_t child = fork();
    if (child == 0) WriteUntilKilled(sockets[1]);
    close(sockets[1]);
    RingHandover handover;
    const int fd = ReceiveRing(sockets[0], &handover);
    ASSERT_GE(fd, 0);
    View view(fd, handover);
    std::vector<uint64_t> values;
    // Differs from round to round, so that the kill falls anywhere.
    const size_t enough = 1000 + 137 * kill_number;
    while (values.size() < enough) {
      for (const uint64_t value : view.TakeMarks()) values.push_back(value);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const uint64_t value : view.TakeMarks()) values.push_back(value);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i);
    total += values.size();
    close(fd);
    close(sockets[0]);
  }
  RecordProperty("records", std::to_string(total));
}

TEST(RingWriter, RefusesAndCounts) {
  auto ring = RingWriter::Create(1, kSmall);
  View view(*ring);
  EXPECT_TRUE(Append(*ring, 1));
  ring->Refuse(true);
  EXPECT_FALSE(Append(*ring, 2));
  EXPECT_FALSE(Append(*ring, 3));
  EXPECT_EQ(view.header().offered_records.load(), 3u);
  EXPECT_EQ(view.header().dropped_records.load(), 2u);
  EXPECT_EQ(view.header().committed_records.load(), 1u);
  // Only when it is asked to does it say so.
  ring->ReportDrops();
  ring->ReportDrops();
  EXPECT_EQ(view.header().committed_records.load(), 2u);
  ring->Refuse(false);
  EXPECT_TRUE(Append(*ring, 4));
  EXPECT_EQ(view.TakeMarks(), (std::vector<uint64_t>{1, 4}));
  EXPECT_EQ(view.types()[1], static_cast<uint8_t>(RecordType::kDrops));
}

TEST(RingWriter, GoesOnForAnotherThread) {
  auto ring = RingWriter::Create(1, kSmall);
  View view(*ring);
  EXPECT_TRUE(Append(*ring, 1));
  ring->MarkClosed();
  EXPECT_EQ(view.header().closed.load(), 1u);
  ring->Reopen();
  EXPECT_TRUE(Append(*ring, 2));
  EXPECT_EQ(view.header().closed.load(), 0u);
  EXPECT_EQ(view.TakeMarks(), (std::vector<uint64_t>{1, 2}));
}

TEST(RingWriter, LeavesFilesOfOthersAlone) {
  auto ring = RingWriter::Create(1, kSmall);
  const int fd = ring->fd();
  EXPECT_GE(fd, 100);
  ASSERT_EQ(dup2(STDERR_FILENO, fd), fd);
  EXPECT_EQ(ring->fd(), -1);
  ring->CloseFile();
  EXPECT_EQ(fcntl(fd, F_GETFD), 0);
  close(fd);
}

TEST(RingWriter, TakesNoDescriptorFromWhoHasFew) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  for (const rlim_t limit : {64, 256}) {
    rlimit few = {limit, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    auto ring = RingWriter::Create(1, kSmall);
    ASSERT_NE(ring, nullptr);
    EXPECT_LT(ring->fd(), 64);
  }
  rlimit none = {3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(RingWriter::Create(1, kSmall), nullptr);
  EXPECT_EQ(errno, EMFILE);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(RingWriter, AskedForMoreThanAFileMayHave) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = {kSmall, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(RingWriter::Create(1, kSmall), nullptr);
  EXPECT_EQ(errno, EFBIG);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace traincheck::agent
