#include "agent/ring/ring_reader.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "agent/ring/ring_for_testing.h"

namespace traincheck::agent {
namespace {

constexpr size_t kNoLimit = 1u << 20;

// What one Take brought: the values of Mark records and the chunk.
struct Taken {
  RingChunk chunk;
  std::vector<uint64_t> values;
  std::string bytes;
};

Taken TakeAll(RingReader* reader, size_t limit = kNoLimit) {
  Taken taken;
  taken.chunk = reader->Take(limit, &taken.bytes, [&](const RecordReader& r) {
    if (r.type() == RecordType::kMark) {
      taken.values.push_back(r.Get<MarkRecord>().value);
    }
  });
  EXPECT_EQ(taken.bytes.size(), taken.chunk.to - taken.chunk.from);
  return taken;
}

// Appends `size` bytes of a record, wrong in `change`, behind two good marks
// and returns what the reader says.
std::string ErrorOf(const std::string& bad) {
  RingForTesting ring(3);
  auto reader = ring.Map();
  ring.AppendMark(1);
  ring.AppendMark(2);
  ring.AppendRaw(bad);
  EXPECT_TRUE(reader->Refresh());
  const Taken taken = TakeAll(reader.get());
  EXPECT_EQ(taken.values, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(taken.chunk.to, 2 * sizeof(MarkRecord));
  EXPECT_TRUE(reader->quarantined());
  EXPECT_FALSE(reader->Refresh());
  return reader->error();
}

TEST(RingReader, TakesWholeRecordsOnceAndInOrder) {
  RingForTesting ring(1);
  auto reader = ring.Map();
  EXPECT_EQ(reader->ring(), 1u);
  ring.AppendMark(10);
  ring.AppendMark(11);
  ASSERT_TRUE(reader->Refresh());
  ring.AppendMark(12);  // after the Refresh: not seen yet
  Taken taken = TakeAll(reader.get());
  EXPECT_EQ(taken.values, (std::vector<uint64_t>{10, 11}));
  EXPECT_EQ(taken.chunk.records, 2u);
  ASSERT_TRUE(reader->Refresh());
  EXPECT_EQ(TakeAll(reader.get()).values, std::vector<uint64_t>{12});
  EXPECT_TRUE(TakeAll(reader.get()).values.empty());
}

TEST(RingReader, CutsAtTheLimitOnARecordBoundary) {
  RingForTesting ring(1);
  auto reader = ring.Map();
  for (uint64_t i = 0; i < 10; ++i) ring.AppendMark(i);
  ASSERT_TRUE(reader->Refresh());
  const Taken first = TakeAll(reader.get(), 3 * sizeof(MarkRecord) + 8);
  EXPECT_EQ(first.values, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_TRUE(TakeAll(reader.get(), sizeof(MarkRecord) - 8).values.empty());
  EXPECT_FALSE(reader->quarantined());
  EXPECT_EQ(TakeAll(reader.get()).values.size(), 7u);
}

TEST(RingReader, FollowsTheRingAroundItsEnd) {
  RingForTesting ring(1, kMinRingBytes);
  auto reader = ring.Map();
  uint64_t written = 0, expected = 0;
  for (int round = 0; round < 100; ++round) {
    while (ring.AppendMark(written)) ++written;
    ASSERT_TRUE(reader->Refresh()) << reader->error();
    const Taken taken = TakeAll(reader.get());
    for (uint64_t value : taken.values) ASSERT_EQ(value, expected++);
    ASSERT_EQ(taken.chunk.records, taken.values.size());  // no padding counted
    ASSERT_FALSE(reader->quarantined()) << reader->error();
    reader->Release(taken.chunk.to);
  }
  EXPECT_EQ(written, expected);
  EXPECT_GT(ring.header().head.load(), 50 * kMinRingBytes);
}

TEST(RingReader, GivesBackSpaceOnlyWhenReleased) {
  RingForTesting ring(1, kMinRingBytes);
  auto reader = ring.Map();
  while (ring.AppendMark(1)) {
  }
  ASSERT_TRUE(reader->Refresh());
  const Taken taken = TakeAll(reader.get());
  EXPECT_FALSE(ring.AppendMark(2));
  EXPECT_EQ(reader->unreleased_bytes(), taken.chunk.to);
  reader->Release(taken.chunk.to);
  EXPECT_TRUE(ring.AppendMark(2));
  reader->Release(0);  // never backwards
  EXPECT_EQ(ring.header().tail.load(), taken.chunk.to);
}

TEST(RingReader, PeekLeavesEverythingInPlace) {
  RingForTesting ring(0, kMinRingBytes);
  auto reader = ring.Map();
  for (uint64_t i = 0; i < 5; ++i) ring.AppendMark(i);
  ASSERT_TRUE(reader->Refresh());
  EXPECT_EQ(reader->Peek(40).size(), 40u);
  EXPECT_EQ(reader->Peek(kNoLimit).size(), 5 * sizeof(MarkRecord));
  EXPECT_EQ(TakeAll(reader.get()).values.size(), 5u);
}

TEST(RingReader, ContinuesAtTheTailOfAReaderThatDied) {
  RingForTesting ring(1);
  ring.AppendMark(1);
  ring.AppendMark(2);
  ring.header().tail.store(sizeof(MarkRecord));
  auto reader = ring.Map();
  EXPECT_EQ(TakeAll(reader.get()).values, std::vector<uint64_t>{2});
}

TEST(RingReader, DiscardLosesWhatIsThereAndFreesIt) {
  RingForTesting ring(1);
  auto reader = ring.Map();
  ring.AppendMark(1);
  reader->Discard();
  EXPECT_EQ(ring.header().tail.load(), ring.header().head.load());
  ring.AppendMark(2);
  ASSERT_TRUE(reader->Refresh());
  EXPECT_EQ(TakeAll(reader.get()).values, std::vector<uint64_t>{2});
}

TEST(RingReader, QuarantinesMalformedRecords) {
  const uint8_t mark = static_cast<uint8_t>(RecordType::kMark);
  EXPECT_NE(ErrorOf(RawRecord(mark, 12) + std::string(4, '\0')).find("size 12"),
            std::string::npos);
  EXPECT_NE(ErrorOf(std::string(24, '\0')).find("size 0"), std::string::npos);
  EXPECT_NE(ErrorOf(RawRecord(0, 16)).find("type 0"), std::string::npos);
  EXPECT_NE(ErrorOf(RawRecord(mark, 16)).find("below"), std::string::npos);
  // Says 65528, but the head ends before that: torn.
  std::string torn = RawRecord(mark, 24);
  torn[0] = static_cast<char>(0xf8);
  torn[1] = static_cast<char>(0xff);
  EXPECT_NE(ErrorOf(torn).find("65528"), std::string::npos);
}

TEST(RingReader, LetsUnknownTypesPass) {
  RingForTesting ring(1);
  auto reader = ring.Map();
  ring.Append(RawRecord(200, 16));
  ring.AppendMark(5);
  ASSERT_TRUE(reader->Refresh());
  const Taken taken = TakeAll(reader.get());
  EXPECT_EQ(taken.chunk.records, 2u);
  EXPECT_EQ(taken.values, std::vector<uint64_t>{5});
}

TEST(RingReader, QuarantinesARecordThatCrossesTheEnd) {
  RingForTesting ring(1, kMinRingBytes);
  auto reader = ring.Map();
  const size_t most = kMinRingBytes / sizeof(MarkRecord);
  for (size_t i = 0; i < most; ++i) ring.AppendMark(i);
  ASSERT_TRUE(reader->Refresh());
  const Taken taken = TakeAll(reader.get());
  reader->Release(taken.chunk.to);
  ring.AppendRaw(MarkBytes(7));  // no padding before it
  ASSERT_TRUE(reader->Refresh());
  EXPECT_TRUE(TakeAll(reader.get()).values.empty());
  EXPECT_TRUE(reader->quarantined());
}

TEST(RingReader, QuarantinesImpossibleHeads) {
  const std::vector<uint64_t> heads = {kMinRingBytes + 8, 20, 0, UINT64_MAX - 7,
                                       uint64_t{1} << 63};
  for (uint64_t head : heads) {
    RingForTesting ring(1, kMinRingBytes);
    auto reader = ring.Map();
    ring.AppendMark(1);
    ASSERT_TRUE(reader->Refresh());
    ring.header().head.store(head);
    EXPECT_FALSE(reader->Refresh()) << head;
    EXPECT_FALSE(reader->error().empty());
    reader->Discard();  // must not follow it
    EXPECT_LE(ring.header().tail.load(), sizeof(MarkRecord)) << head;
  }
}

TEST(RingReader, RefusesHandoversThatDoNotFit) {
  const auto refused = [](auto change) {
    RingForTesting ring(1);
    RingHandover handover = ring.handover();
    change(&handover, &ring.header());
    std::string error;
    return RingReader::Map(ring.fd(), handover, &error) == nullptr &&
           !error.empty();
  };
  using H = RingHandover*;
  using R = RingHeader*;
  EXPECT_FALSE(refused([](H, R) {}));
  EXPECT_TRUE(refused([](H h, R) { h->magic = 1; }));
  EXPECT_TRUE(refused([](H h, R) { h->version = 2; }));
  EXPECT_TRUE(refused([](H h, R) { h->capacity_bytes = 3000; }));
  EXPECT_TRUE(refused([](H h, R) { h->capacity_bytes = 0; }));
  EXPECT_TRUE(refused([](H h, R) { h->capacity_bytes *= 2; }));
  EXPECT_TRUE(refused([](H h, R) { h->capacity_bytes = uint64_t{1} << 40; }));
  EXPECT_TRUE(refused([](H h, R) { h->ring = 2; }));
  EXPECT_TRUE(refused([](H h, R) { h->pid += 1; }));
  EXPECT_TRUE(refused([](H, R r) { r->magic = 0; }));
  EXPECT_TRUE(refused([](H, R r) { r->capacity_bytes = kMinRingBytes; }));
  EXPECT_TRUE(refused([](H, R r) { r->head = 1; }));
  EXPECT_TRUE(refused([](H, R r) { r->tail = 8; }));  // beyond the head
}

TEST(RingReader, RefusesWhatIsNoRingFile) {
  RingForTesting ring(1);
  std::string error;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(RingReader::Map(ends[0], ring.handover(), &error), nullptr);
  EXPECT_EQ(RingReader::Map(-1, ring.handover(), &error), nullptr);
  const int small = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(small, kRingHeaderBytes), 0);
  EXPECT_EQ(RingReader::Map(small, ring.handover(), &error), nullptr);
  EXPECT_NE(error.find("bytes"), std::string::npos) << error;
  for (int fd : {ends[0], ends[1], small}) close(fd);
}

TEST(RingReader, RefusesAFileThatMayShrink) {
  RingForTesting ring(1);
  const size_t bytes = kRingHeaderBytes + ring.handover().capacity_bytes;
  // Without MFD_ALLOW_SEALING nobody can seal it.
  const int file = memfd_create("ring", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
  ASSERT_EQ(pwrite(file, &ring.header(), sizeof(RingHeader), 0),
            static_cast<ssize_t>(sizeof(RingHeader)));
  std::string error;
  EXPECT_EQ(RingReader::Map(file, ring.handover(), &error), nullptr);
  EXPECT_NE(error.find("may shrink"), std::string::npos) << error;
  close(file);
}

TEST(RingReader, TheFileCannotShrinkUnderIt) {
  RingForTesting ring(1);
  auto reader = ring.Map();
  EXPECT_NE(ftruncate(ring.fd(), 0), 0);
}

TEST(RingReader, ReportsTheWritersCounters) {
  RingForTesting ring(1, kMinRingBytes);
  auto reader = ring.Map();
  uint64_t committed = 0;
  while (ring.AppendMark(1)) ++committed;
  const RingCounters counters = reader->counters();
  EXPECT_EQ(counters.committed_records, committed);
  EXPECT_EQ(counters.dropped_records, 1u);
  EXPECT_EQ(counters.offered_records, committed + 1);
  EXPECT_EQ(counters.head, ring.header().head.load());
  EXPECT_FALSE(reader->closed());
  ring.header().closed.store(1);
  EXPECT_TRUE(reader->closed());
}

TEST(RingReaderHistoryTest, ShowsWhatWasReleasedUntilItMayBeOverwritten) {
  constexpr uint64_t kCapacity = 256u << 10;
  RingForTesting ring(0, kCapacity);
  uint64_t value = 0;
  while (ring.header().head + 2 * kMaxRecordBytes + 48 <= kCapacity) {
    ASSERT_TRUE(ring.AppendMark(value++));
  }
  const auto first = ring.Map();
  std::string taken;
  while (first->unread_bytes() > 0) {
    first->Take(kCapacity, &taken, [](const RecordReader&) {});
  }
  first->Release(first->position());
  // Another reader, which begins at the tail.
  const auto second = ring.Map();
  EXPECT_EQ(second->unread_bytes(), 0u);
  std::string history;
  RingChunk chunk;
  ASSERT_TRUE(second->PeekHistory(0, &history, &chunk));
  EXPECT_EQ(history, taken);
  EXPECT_EQ(chunk.records, value);
  EXPECT_EQ(chunk.to, taken.size());
  ASSERT_TRUE(second->PeekHistory(24, &history, &chunk));
  EXPECT_EQ(history, taken.substr(24));
  EXPECT_FALSE(second->PeekHistory(4, &history, &chunk));
  EXPECT_FALSE(second->PeekHistory(taken.size() + 24, &history, &chunk));
  // From here on the writer may be at the beginning again: within a record that
  // is not published, with padding of almost its size before it.
  while (ring.header().head + 2 * kMaxRecordBytes <= kCapacity) {
    ASSERT_TRUE(ring.AppendMark(value++));
  }
  EXPECT_FALSE(second->PeekHistory(0, &history, &chunk));
}

TEST(RingReaderHistoryTest, RefusesWhatIsNoRecord) {
  RingForTesting ring(0);
  ring.AppendRaw(std::string(64, '\0'));
  const auto writer_made = ring.header().head.load();
  ring.header().tail = writer_made;
  const auto reader = ring.Map();
  std::string history;
  RingChunk chunk;
  EXPECT_FALSE(reader->PeekHistory(0, &history, &chunk));
}

TEST(RingReaderSkipTest, LeavesOutWhatIsSafeElsewhere) {
  RingForTesting ring(1);
  for (uint64_t value = 0; value < 10; ++value) ring.AppendMark(value);
  const auto reader = ring.Map();
  ASSERT_TRUE(reader->Refresh());
  EXPECT_TRUE(reader->SkipTo(3 * sizeof(MarkRecord)));
  EXPECT_EQ(ring.header().tail, 3 * sizeof(MarkRecord));
  EXPECT_TRUE(reader->SkipTo(sizeof(MarkRecord)));  // long past
  EXPECT_EQ(reader->position(), 3 * sizeof(MarkRecord));
  EXPECT_FALSE(reader->SkipTo(11 * sizeof(MarkRecord)));
  EXPECT_FALSE(reader->SkipTo(3 * sizeof(MarkRecord) + 4));
  std::string bytes;
  const RingChunk chunk =
      reader->Take(1 << 20, &bytes, [](const RecordReader&) {});
  EXPECT_EQ(chunk.records, 7u);
  EXPECT_FALSE(reader->quarantined());
}

}  // namespace
}  // namespace traincheck::agent
