#include "agent/relay/outbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "agent/relay/limits.h"
#include "agent/relay/spool_for_testing.h"

namespace traincheck::agent {
namespace {

using Numbers = std::vector<uint64_t>;
constexpr uint64_t kManyBytes = uint64_t{1} << 40;

class OutboxTest : public testing::Test {
 protected:
  OutboxTest()
      : folder_(testing::TempDir() + "/outbox-" + std::to_string(getpid()) +
                "-" + std::to_string(next_folder_++)),
        directory_(SpoolPlacesIn(folder_, geteuid()), kManyBytes),
        outbox_({.open_spool = [this] { return Open(); },
                 .release =
                     [this](const Slices& slices) {
                       released_.push_back(slices[0].from());
                     },
                 .definitions = [this] { return definitions_; },
                 .compressor = &compressor_}) {
    std::filesystem::create_directories(folder_);
  }
  ~OutboxTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<SpoolFile>> Open() {
    if (!spool_works_) return absl::UnavailableError("no disk");
    return SpoolFile::Create(&directory_, "a.spool", "");
  }

  // Adds batches; the slice of the n-th begins at position n.
  void Add(int count, size_t payload_bytes = 100) {
    for (int i = 0; i < count; ++i) {
      v1::Batch batch;
      v1::Slice* slice = batch.add_slices();
      slice->set_ring(1);
      slice->set_from(added_++);
      slice->set_to(added_);
      slice->set_records(1);
      batch.set_payload(std::string(payload_bytes, 'x'));
      outbox_.Add(std::move(batch), now_);
    }
  }

  void Resume(uint64_t next_batch, uint64_t credit_bytes,
              const std::string& store = "store") {
    v1::Welcome welcome;
    welcome.set_store_id(store);
    welcome.set_next_batch(next_batch);
    welcome.set_credit_bytes(credit_bytes);
    outbox_.Resume(welcome);
    number_ = next_batch;
  }

  // Everything that goes out now, by what it is; the numbers rise by one.
  Numbers Sent() {
    Numbers sent;
    while (const auto batch = outbox_.NextToSend()) {
      EXPECT_EQ(batch->number(), number_++);
      sent.push_back(batch->slices(0).from());
    }
    return sent;
  }

  absl::Status SpoolAll() {
    return outbox_.Spool(now_, std::chrono::milliseconds(0));
  }

  SpoolContents Spooled() { return ReadSpool(folder_ + "/a.spool").value(); }

  // Makes what was spooled last unreadable.
  void TruncateSpool(uint64_t by) {
    const std::string path = folder_ + "/a.spool";
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - by);
  }

  // Of the process: [0, 10) and [10, 20).
  void Define() {
    for (uint64_t from : {0, 10}) {
      auto batch = std::make_shared<v1::Batch>();
      v1::Slice* slice = batch->add_slices();
      slice->set_from(from);
      slice->set_to(from + 10);
      definitions_.push_back(std::move(batch));
    }
  }

  static inline int next_folder_ = 0;
  const std::string folder_;
  SpoolDirectory directory_;
  bool spool_works_ = true;
  uint64_t added_ = 0;
  Numbers released_;
  uint64_t number_ = 0;
  Compressor compressor_;
  std::vector<Outbox::SharedBatch> definitions_;
  Outbox::TimePoint now_{std::chrono::hours(1)};
  Outbox outbox_;
};

TEST_F(OutboxTest, SendsInOrderAndReleasesWhatIsAcknowledged) {
  Add(3);
  EXPECT_EQ(Sent(), Numbers{});  // no stream yet
  Resume(0, kManyBytes);
  EXPECT_EQ(Sent(), (Numbers{0, 1, 2}));
  EXPECT_TRUE(outbox_.all_sent());
  ASSERT_TRUE(outbox_.Acknowledge(2).ok());
  EXPECT_EQ(released_, (Numbers{0, 1}));
  EXPECT_FALSE(outbox_.empty());
  ASSERT_TRUE(outbox_.Acknowledge(1).ok());  // old news
  ASSERT_TRUE(outbox_.Acknowledge(3).ok());
  EXPECT_EQ(released_, (Numbers{0, 1, 2}));
  EXPECT_TRUE(outbox_.empty());
  EXPECT_EQ(outbox_.spool_path(), "");
}

TEST_F(OutboxTest, ResendsFromTheServersCursor) {
  Add(5);
  Resume(0, kManyBytes);
  EXPECT_EQ(Sent().size(), 5u);
  ASSERT_TRUE(outbox_.Acknowledge(1).ok());
  outbox_.Disconnect();
  Add(1);
  EXPECT_EQ(Sent(), Numbers{});
  Resume(3, kManyBytes);
  EXPECT_EQ(released_, (Numbers{0, 1, 2}));
  EXPECT_EQ(Sent(), (Numbers{3, 4, 5}));
}

TEST_F(OutboxTest, ANewStoreGetsTheOldestThatIsHeld) {
  Add(4);
  Resume(0, kManyBytes);
  Sent();
  ASSERT_TRUE(outbox_.Acknowledge(2).ok());
  outbox_.Disconnect();
  Resume(0, kManyBytes, "other");
  EXPECT_EQ(Sent(), (Numbers{2, 3}));  // as batches 0 and 1
}

TEST_F(OutboxTest, AcceptsNoMoreThanWasSent) {
  Add(2);
  Resume(0, 150);
  EXPECT_EQ(Sent(), Numbers{0});
  EXPECT_EQ(outbox_.Acknowledge(2).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(released_.empty());
}

TEST_F(OutboxTest, ABatchThatIsGivenUpLeavesNoGapInTheNumbers) {
  Add(3);
  Resume(0, kManyBytes);
  Sent();
  outbox_.Disconnect();
  outbox_.DropFirst();
  EXPECT_EQ(outbox_.TakeLostBatches(), 1u);
  EXPECT_EQ(outbox_.TakeLostBatches(), 0u);
  Resume(0, kManyBytes);
  EXPECT_EQ(Sent(), (Numbers{1, 2}));
}

TEST_F(OutboxTest, KeepsWithinTheCredit) {
  Add(5);
  Resume(0, 250);
  EXPECT_EQ(Sent(), (Numbers{0, 1}));
  ASSERT_TRUE(outbox_.Acknowledge(1).ok());
  EXPECT_EQ(Sent(), Numbers{2});
  ASSERT_TRUE(outbox_.Acknowledge(3).ok());
  EXPECT_EQ(Sent(), (Numbers{3, 4}));
  Add(1, 1000);  // larger than all credit: alone
  EXPECT_EQ(Sent(), Numbers{});
  ASSERT_TRUE(outbox_.Acknowledge(5).ok());
  EXPECT_EQ(Sent(), Numbers{5});
  outbox_.Disconnect();
  Resume(5, 0);
  EXPECT_EQ(Sent(), Numbers{});
}

TEST_F(OutboxTest, SpoolsWhatIsOldAndReleasesIt) {
  Add(2);
  now_ += std::chrono::milliseconds(150);
  Add(1);
  ASSERT_TRUE(outbox_.Spool(now_, kMaxUnacknowledged).ok());
  EXPECT_EQ(outbox_.spool_path(), "");
  now_ += std::chrono::milliseconds(60);
  ASSERT_TRUE(outbox_.Spool(now_, kMaxUnacknowledged).ok());
  EXPECT_EQ(Spooled().batches.size(), 2u);
  EXPECT_EQ(released_, (Numbers{0, 1}));
  Resume(0, kManyBytes);
  EXPECT_EQ(Sent(), (Numbers{0, 1, 2}));  // two from the file, one from memory
  ASSERT_TRUE(outbox_.Acknowledge(3).ok());
  EXPECT_EQ(released_, (Numbers{0, 1, 2}));  // each once
}

TEST_F(OutboxTest, TheSpoolShrinksWhenItIsDelivered) {
  Add(3);
  ASSERT_TRUE(SpoolAll().ok());
  Resume(0, kManyBytes);
  EXPECT_EQ(Sent(), (Numbers{0, 1, 2}));
  ASSERT_TRUE(outbox_.Acknowledge(1).ok());
  EXPECT_EQ(Spooled().acknowledged, 1u);
  ASSERT_TRUE(outbox_.Acknowledge(3).ok());
  EXPECT_TRUE(Spooled().batches.empty());
  Add(1);
  ASSERT_TRUE(SpoolAll().ok());
  ASSERT_EQ(Spooled().batches.size(), 1u);
  EXPECT_EQ(Sent(), Numbers{3});
  outbox_.RemoveSpool();
  EXPECT_TRUE(SpoolFiles(folder_).empty());
}

TEST_F(OutboxTest, HasRoomAgainOnceSpooledOrAcknowledged) {
  const int fill = static_cast<int>(kMaxMemoryBytes / (1u << 20));
  Add(fill - 1, 1u << 20);
  EXPECT_TRUE(outbox_.has_room());
  Add(1, 1u << 20);
  EXPECT_FALSE(outbox_.has_room());
  spool_works_ = false;
  EXPECT_FALSE(SpoolAll().ok());
  EXPECT_FALSE(outbox_.has_room());
  EXPECT_TRUE(released_.empty());
  spool_works_ = true;
  ASSERT_TRUE(SpoolAll().ok());
  EXPECT_TRUE(outbox_.has_room());
  Add(fill, 1u << 20);
  Resume(0, kManyBytes);
  EXPECT_EQ(Sent().size(), 2u * fill);
  EXPECT_FALSE(outbox_.has_room());
  ASSERT_TRUE(outbox_.Acknowledge(2 * fill).ok());
  EXPECT_TRUE(outbox_.has_room());
}

TEST_F(OutboxTest, LeavesEverythingBehindWithTheGoodbye) {
  Add(3);
  Resume(0, kManyBytes);
  Sent();
  ASSERT_TRUE(outbox_.Acknowledge(1).ok());
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_DIED);
  ASSERT_TRUE(outbox_.LeaveBehind(goodbye).ok());
  const SpoolContents contents = Spooled();
  ASSERT_EQ(contents.batches.size(), 2u);
  EXPECT_EQ(contents.batches[0].number(), 1u);
  EXPECT_EQ(contents.goodbye->end(), v1::END_KIND_DIED);
  EXPECT_FALSE(contents.torn);
}

TEST_F(OutboxTest, LeavesTheDefinitionsThatANewStoreWouldLack) {
  Define();
  Add(2);
  v1::Batch batch;
  v1::Slice* slice = batch.add_slices();
  slice->set_from(10);
  slice->set_to(20);
  outbox_.Add(std::move(batch), now_);
  ASSERT_TRUE(outbox_.LeaveBehind(v1::Goodbye()).ok());
  const SpoolContents contents = Spooled();
  EXPECT_EQ(contents.batches.size(), 3u);
  ASSERT_EQ(contents.definitions.size(), 1u);
  EXPECT_EQ(contents.definitions[0].slices(0).to(), 10u);
  EXPECT_TRUE(contents.goodbye.has_value());
}

TEST_F(OutboxTest, LeavesNoDefinitionsWithoutRecords) {
  Define();
  ASSERT_TRUE(outbox_.LeaveBehind(v1::Goodbye()).ok());
  EXPECT_TRUE(Spooled().definitions.empty());
}

TEST_F(OutboxTest, LeavesAGoodbyeThatAloneIsMissing) {
  ASSERT_TRUE(outbox_.LeaveBehind(v1::Goodbye()).ok());
  EXPECT_TRUE(Spooled().goodbye.has_value());
}

TEST_F(OutboxTest, ABatchThatTheSpoolLostIsLeftOut) {
  Add(3);
  ASSERT_TRUE(SpoolAll().ok());
  TruncateSpool(10);
  Resume(0, kManyBytes);
  Add(1);
  EXPECT_EQ(Sent(), (Numbers{0, 1, 3}));
  EXPECT_EQ(outbox_.TakeLostBatches(), 1u);
  ASSERT_TRUE(outbox_.Acknowledge(3).ok());
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(OutboxTest, DiscardFreesTheRingsAndDeletesTheSpool) {
  Add(2);
  ASSERT_TRUE(SpoolAll().ok());
  Add(2);
  outbox_.Discard();
  EXPECT_EQ(released_, (Numbers{0, 1, 2, 3}));
  EXPECT_TRUE(outbox_.empty() && outbox_.all_sent() && outbox_.has_room());
  EXPECT_TRUE(SpoolFiles(folder_).empty());
}

}  // namespace
}  // namespace traincheck::agent
