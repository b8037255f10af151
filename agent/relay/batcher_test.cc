#include "agent/relay/batcher.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <vector>

#include "agent/relay/limits.h"
#include "agent/ring/ring_for_testing.h"
#include "proto/record_reader.h"

namespace traincheck::agent {
namespace {

constexpr milliseconds kAtOnce{0};

class BatcherTest : public testing::Test {
 protected:
  void Add(const RingForTesting& ring) {
    const absl::Status status = rings_.Add(ring.fd(), ring.handover());
    ASSERT_TRUE(status.ok()) << status;
  }

  std::optional<v1::Batch> Next(milliseconds gather = kMaxLie) {
    rings_.Refresh();
    return batcher_.Next(now_, gather);
  }

  static std::string Plain(const v1::Batch& batch) {
    std::string plain(batch.plain_bytes(), '\0');
    const size_t size =
        ZSTD_decompress(plain.data(), plain.size(), batch.payload().data(),
                        batch.payload().size());
    EXPECT_EQ(size, plain.size());
    return plain;
  }

  // Values of all Mark records, in the order of the payload.
  static std::vector<uint64_t> Marks(const v1::Batch& batch) {
    const std::string plain = Plain(batch);
    std::vector<uint64_t> values;
    RecordReader records(plain);
    while (records.Next()) {
      if (records.type() == RecordType::kMark) {
        values.push_back(records.Get<MarkRecord>().value);
      }
    }
    EXPECT_TRUE(records.ok()) << records.error();
    return values;
  }

  Compressor compressor_;
  RingSet rings_;
  DefinitionTable table_{&compressor_};
  Batcher batcher_{&rings_, &table_, &compressor_};
  Batcher::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(BatcherTest, PutsDefinitionsFirstThenTheMainThread) {
  RingForTesting definitions(0), main(1), other(2);
  Add(other);
  Add(main);
  Add(definitions);
  EXPECT_FALSE(Next().has_value());
  other.AppendMark(30);
  main.AppendMark(20);
  main.AppendMark(21);
  definitions.AppendMark(10);
  const auto batch = Next(kAtOnce);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(Marks(*batch), (std::vector<uint64_t>{10, 20, 21, 30}));
  ASSERT_EQ(batch->slices_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(batch->slices(i).ring(), unsigned(i));
  EXPECT_EQ(batch->slices(1).records(), 2u);
  EXPECT_EQ(batch->slices(1).to(), 2 * sizeof(MarkRecord));
  EXPECT_FALSE(Next(kAtOnce).has_value());
}

TEST_F(BatcherTest, WaitsForEnoughOrForTime) {
  RingForTesting main(1);
  Add(main);
  EXPECT_FALSE(Next().has_value());  // empty now
  main.AppendMark(1);
  now_ += kActivePoll;
  EXPECT_FALSE(Next().has_value());
  now_ += kMaxLie - kActivePoll;
  EXPECT_TRUE(Next().has_value());
  EXPECT_FALSE(Next().has_value());
  now_ += kIdlePoll;  // may have lain since the last poll
  main.AppendMark(2);
  EXPECT_TRUE(Next().has_value());
}

TEST_F(BatcherTest, GathersForAsLongAsItIsAsked) {
  RingForTesting main(1, 4u << 20);
  Add(main);
  EXPECT_FALSE(Next().has_value());  // empty now
  for (int i = 0; i < 10; ++i) {
    main.AppendMark(i);
    now_ += kMaxLie;
    EXPECT_FALSE(Next(11 * kMaxLie).has_value());
  }
  now_ += kMaxLie;
  const auto batch = Next(11 * kMaxLie);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(Marks(*batch).size(), 10u);
  // Enough for a batch waits for nothing.
  for (size_t i = 0; i <= kEnoughForABatchBytes / sizeof(MarkRecord); ++i) {
    main.AppendMark(i);
  }
  EXPECT_TRUE(Next(11 * kMaxLie).has_value());
}

TEST_F(BatcherTest, AFullRingGoesAtOnceInBoundedBatches) {
  RingForTesting main(1, 4u << 20);
  Add(main);
  Next();
  uint64_t count = 0;
  while (main.AppendMark(count)) ++count;
  uint64_t expected = 0, position = 0;
  while (const auto batch = Next()) {
    EXPECT_LE(batch->plain_bytes(), kMaxBatchPlainBytes);
    EXPECT_EQ(batch->slices(0).from(), position);
    position = batch->slices(0).to();
    for (uint64_t value : Marks(*batch)) ASSERT_EQ(value, expected++);
    rings_.Release(batch->slices());
    now_ += kMaxLie;
  }
  EXPECT_EQ(expected, count);
  EXPECT_TRUE(main.AppendMark(count));
}

TEST_F(BatcherTest, RecordsWaitForDefinitionsThatDoNotFit) {
  RingForTesting definitions(0, 1u << 20), main(1);
  Add(definitions);
  Add(main);
  uint32_t id = 0;
  while (definitions.Append(StringDefBytes(++id, 900))) {
  }
  main.AppendMark(5);
  auto batch = Next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_TRUE(Marks(*batch).empty());
  batch = Next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_TRUE(Marks(*batch).empty());
  batch = Next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->slices(0).ring(), 0u);
  EXPECT_EQ(Marks(*batch), std::vector<uint64_t>{5});
}

TEST_F(BatcherTest, PayloadsCarryAChecksum) {
  RingForTesting main(1);
  Add(main);
  for (int i = 0; i < 100; ++i) main.AppendMark(i);
  auto batch = Next(kAtOnce);
  ASSERT_TRUE(batch.has_value());
  std::string payload = batch->payload();
  EXPECT_EQ(ZSTD_getFrameContentSize(payload.data(), payload.size()),
            batch->plain_bytes());
  payload.back() = static_cast<char>(payload.back() ^ 1);
  std::string plain(batch->plain_bytes(), '\0');
  EXPECT_TRUE(ZSTD_isError(ZSTD_decompress(plain.data(), plain.size(),
                                           payload.data(), payload.size())));
}

TEST_F(BatcherTest, AMalformedRingStopsAloneAndIsFreed) {
  RingForTesting main(1), other(2);
  Add(main);
  Add(other);
  other.AppendMark(1);
  other.AppendRaw(std::string(24, '\0'));
  main.AppendMark(2);
  auto batch = Next(kAtOnce);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(Marks(*batch), (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(rings_.NewFaults().size(), 1u);
  EXPECT_TRUE(rings_.NewFaults().empty());
  other.AppendMark(3);
  main.AppendMark(4);
  batch = Next(kAtOnce);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(Marks(*batch), std::vector<uint64_t>{4});
  EXPECT_FALSE(Next(kAtOnce).has_value());
  EXPECT_EQ(other.header().tail.load(), other.header().head.load());
}

TEST_F(BatcherTest, SeesACleanExit) {
  RingForTesting main(1);
  Add(main);
  main.Append(MarkBytes(0, static_cast<uint8_t>(MarkKind::kStepClosed)));
  Next(kAtOnce);
  EXPECT_FALSE(batcher_.saw_clean_exit());
  main.Append(MarkBytes(0, static_cast<uint8_t>(MarkKind::kCleanExit)));
  Next(kAtOnce);
  EXPECT_TRUE(batcher_.saw_clean_exit());
}

TEST_F(BatcherTest, PressureIsAHalfFullRing) {
  RingForTesting main(1, 4096);
  Add(main);
  for (int i = 0; i < 80; ++i) main.AppendMark(i);
  const auto first = Next(kAtOnce);
  EXPECT_FALSE(rings_.under_pressure());
  for (int i = 0; i < 20; ++i) main.AppendMark(i);
  Next(kAtOnce);
  EXPECT_TRUE(rings_.under_pressure());
  rings_.Release(first->slices());
  EXPECT_FALSE(rings_.under_pressure());
}

TEST_F(BatcherTest, FinalReportsCountTheRecordsThatAreThere) {
  RingForTesting main(1);
  Add(main);
  main.AppendMark(1);
  main.AppendMark(2);
  // Killed before the head of a third one, or before the count of the second.
  for (uint64_t counted : {3, 1}) {
    main.header().committed_records.store(counted);
    main.header().offered_records.store(counted);
    Next(kAtOnce);
    EXPECT_EQ(rings_.Reports(false)[0].committed_records(), counted);
    const v1::RingReport report = rings_.Reports(true)[0];
    EXPECT_EQ(report.committed_records(), 2u);
    EXPECT_EQ(report.offered_records(), 2u);
    EXPECT_EQ(report.dropped_records(), 0u);
    EXPECT_EQ(report.tid(), 1001u);
  }
}

TEST_F(BatcherTest, FinalReportsOfUnreadRingsSayWhatTheWriterSays) {
  RingForTesting bad(1);
  Add(bad);
  bad.AppendMark(1);
  bad.AppendRaw(std::string(24, '\0'));
  bad.AppendMark(2);
  Next(kAtOnce);
  EXPECT_EQ(rings_.Reports(true)[0].committed_records(), 2u);
}

TEST_F(BatcherTest, RingsComeOnceAndNotTooMany) {
  RingForTesting main(1);
  Add(main);
  EXPECT_EQ(rings_.Add(main.fd(), main.handover()).code(),
            absl::StatusCode::kAlreadyExists);
  for (uint32_t ring = 2; ring <= kMaxRingsPerProcess; ++ring) {
    Add(RingForTesting(ring, 4096));
  }
  RingForTesting more(kMaxRingsPerProcess + 1, 4096);
  EXPECT_EQ(rings_.Add(more.fd(), more.handover()).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace traincheck::agent
