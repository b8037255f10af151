// A writer that is killed at any moment leaves whole records up to its head:
// real processes, real SIGKILL, a reader at work meanwhile.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "agent/ring/ring_reader.h"
#include "agent/ring/ring_writer.h"
#include "base/seed_for_testing.h"

namespace traincheck::agent {
namespace {

constexpr uint64_t kKills = 150;
constexpr uint64_t kRingBytes = 64u << 10;  // small: goes around often
constexpr size_t kMaxWords = 60;            // behind the header

// Record n: its words all say n, and its size follows from n.
size_t WordsOf(uint64_t n) { return 3 + n * 7 % (kMaxWords - 3); }

// A type that no build knows, so that any size will do.
constexpr uint8_t kType = 201;

// The child: offers records until it is killed. A dropped record is offered
// again, so that numbers have no gaps.
[[noreturn]] void WriteUntilKilled(int socket) {
  auto ring = RingWriter::Create(1, kRingBytes);
  const RingHandover handover = ring->handover();
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {const_cast<RingHandover*>(&handover), sizeof handover};
  msghdr message = {};
  message.msg_iov = &part;
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
  uint64_t words[1 + kMaxWords];
  for (uint64_t n = 0;; ++n) {
    const size_t size = 8 * (1 + WordsOf(n));
    const RecordHeader header = {static_cast<uint16_t>(size), kType, 0, 0};
    std::memcpy(words, &header, sizeof header);
    for (size_t i = 1; i <= WordsOf(n); ++i) words[i] = n;
    while (!ring->TryAppend(words, size)) {
    }
  }
}

std::unique_ptr<RingReader> ReceiveRing(int socket) {
  RingHandover handover;
  char control[CMSG_SPACE(sizeof(int))];
  iovec part = {&handover, sizeof handover};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof handover) {
    return nullptr;
  }
  int fd;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  std::string error;
  auto reader = RingReader::Map(fd, handover, &error);
  EXPECT_NE(reader, nullptr) << error;
  close(fd);
  return reader;
}

// Reads what is there and checks every byte. Returns the records.
uint64_t ReadAndCheck(RingReader* reader, uint64_t next) {
  std::string bytes;
  uint64_t expected = next;
  const RingChunk chunk =
      reader->Take(1u << 20, &bytes, [&](const RecordReader& record) {
        if (record.type() == RecordType::kPadding) return;
        const size_t words = WordsOf(expected);
        ASSERT_EQ(record.header().type, kType);
        ASSERT_EQ(record.bytes().size(), 8 * (1 + words));
        for (size_t i = 1; i <= words; ++i) {
          uint64_t word;
          std::memcpy(&word, record.bytes().data() + 8 * i, sizeof word);
          ASSERT_EQ(word, expected);
        }
        ++expected;
      });
  EXPECT_EQ(expected - next, chunk.records);
  reader->Release(chunk.to);
  return chunk.records;
}

// One life of a writer, killed after about `life`. Returns the records read.
uint64_t LiveAndDie(std::chrono::microseconds life) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t writer = fork();
  if (writer == 0) WriteUntilKilled(ends[1]);
  close(ends[1]);
  auto reader = ReceiveRing(ends[0]);
  close(ends[0]);
  if (reader == nullptr) return 0;

  uint64_t read = 0;
  const auto end = std::chrono::steady_clock::now() + life;
  while (std::chrono::steady_clock::now() < end) {
    EXPECT_TRUE(reader->Refresh()) << reader->error();
    read += ReadAndCheck(reader.get(), read);
  }
  EXPECT_EQ(kill(writer, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(waitpid(writer, &status, 0), writer);
  EXPECT_TRUE(WIFSIGNALED(status));

  EXPECT_TRUE(reader->Refresh()) << reader->error();
  read += ReadAndCheck(reader.get(), read);
  EXPECT_FALSE(reader->quarantined()) << reader->error();
  EXPECT_EQ(reader->unread_bytes(), 0u);
  // Counters are stored before the head (RING_ABI.md rule 7).
  EXPECT_LE(reader->counters().committed_records - read, 1u);
  return read;
}

TEST(RingKill, EverythingCommittedIsReadableAfterSigkill) {
  const uint64_t seed = SeedForTesting(20240607);
  SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  uint64_t records = 0;
  const uint64_t kills = SeedsForTesting(kKills);
  for (uint64_t i = 0; i < kills && !HasFailure(); ++i) {
    records += LiveAndDie(std::chrono::microseconds(random() % 5000));
  }
  // Several turns around the ring, or this shows nothing. A sanitizer makes the
  // writer slow.
  EXPECT_GT(records, kills * 100);
}

}  // namespace
}  // namespace traincheck::agent
