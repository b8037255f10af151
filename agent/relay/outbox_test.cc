#include "agent/relay/outbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "agent/relay/limits.h"
#include "agent/relay/spool_for_testing.h"

namespace traincheck {
namespace {

using Numbers = std::vector<uint64_t>;
constexpr uint64_t kManyBytes = uint64_t{1} << 40;

class OutboxTest : public testing::Test {
 protected:
  OutboxTest()
      : folder_(testing::TempDir() + "/outbox-" + std::to_string(getpid()) +
                "-" + std::to_string(next_folder_++)),
        directory_(folder_, folder_, kManyBytes),
        outbox_({[this] { return Open(); },
                 [this](const v1::Batch& batch) {
                   released_.push_back(batch.slices(0).to());
                 }}) {}
  ~OutboxTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<SpoolFile>> Open() {
    if (!spool_works_) return absl::UnavailableError("no disk");
    return SpoolFile::Create(&directory_, "a.spool", "");
  }

  // Adds batches; the slice of the n-th ends at position n.
  void Add(int count, size_t payload_bytes = 100) {
    for (int i = 0; i < count; ++i) {
      v1::Batch batch;
      batch.add_slices()->set_to(added_++);
      batch.set_payload(std::string(payload_bytes, 'x'));
      outbox_.Add(std::move(batch), now_);
    }
  }

  // Everything that goes out now.
  Numbers Sent() {
    Numbers numbers;
    while (true) {
      const auto batch = outbox_.NextToSend();
      if (!batch.ok() || !batch->has_value()) return numbers;
      EXPECT_EQ((*batch)->slices(0).to(), (*batch)->number());
      numbers.push_back((*batch)->number());
    }
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

  static inline int next_folder_ = 0;
  const std::string folder_;
  SpoolDirectory directory_;
  bool spool_works_ = true;
  uint64_t added_ = 0;
  Numbers released_;
  Outbox::TimePoint now_{std::chrono::hours(1)};
  Outbox outbox_;
};

TEST_F(OutboxTest, SendsInOrderAndReleasesWhatIsAcknowledged) {
  Add(3);
  EXPECT_EQ(Sent(), Numbers{});  // no stream yet
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
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
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
  EXPECT_EQ(Sent().size(), 5u);
  ASSERT_TRUE(outbox_.Acknowledge(1).ok());
  outbox_.Disconnect();
  Add(1);
  EXPECT_EQ(Sent(), Numbers{});
  ASSERT_TRUE(outbox_.Resume(3, kManyBytes).ok());
  EXPECT_EQ(released_, (Numbers{0, 1, 2}));
  EXPECT_EQ(Sent(), (Numbers{3, 4, 5}));
}

TEST_F(OutboxTest, ANewStoreGetsTheOldestThatIsHeld) {
  Add(4);
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
  Sent();
  ASSERT_TRUE(outbox_.Acknowledge(2).ok());
  outbox_.Disconnect();
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
  EXPECT_EQ(Sent(), (Numbers{2, 3}));
}

TEST_F(OutboxTest, RefusesAServerThatClaimsMoreThanWasSent) {
  Add(2);
  EXPECT_EQ(outbox_.Resume(3, kManyBytes).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(outbox_.Resume(0, 150).ok());
  EXPECT_EQ(Sent(), Numbers{0});
  EXPECT_EQ(outbox_.Acknowledge(2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(released_.empty());
}

TEST_F(OutboxTest, KeepsWithinTheCredit) {
  Add(5);
  ASSERT_TRUE(outbox_.Resume(0, 250).ok());
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
  ASSERT_TRUE(outbox_.Resume(5, 0).ok());
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
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
  EXPECT_EQ(Sent(), (Numbers{0, 1, 2}));  // two from the file, one from memory
  ASSERT_TRUE(outbox_.Acknowledge(3).ok());
  EXPECT_EQ(released_, (Numbers{0, 1, 2}));  // each once
}

TEST_F(OutboxTest, TheSpoolShrinksWhenItIsDelivered) {
  Add(3);
  ASSERT_TRUE(SpoolAll().ok());
  ASSERT_TRUE(outbox_.Resume(1, kManyBytes).ok());
  EXPECT_EQ(Spooled().acknowledged, 1u);
  EXPECT_EQ(Sent(), (Numbers{1, 2}));
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
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
  EXPECT_EQ(Sent().size(), 2u * fill);
  EXPECT_FALSE(outbox_.has_room());
  ASSERT_TRUE(outbox_.Acknowledge(2 * fill).ok());
  EXPECT_TRUE(outbox_.has_room());
}

TEST_F(OutboxTest, LeavesEverythingBehindWithTheGoodbye) {
  Add(3);
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
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

TEST_F(OutboxTest, LeavesAGoodbyeThatAloneIsMissing) {
  ASSERT_TRUE(outbox_.LeaveBehind(v1::Goodbye()).ok());
  EXPECT_TRUE(Spooled().goodbye.has_value());
}

TEST_F(OutboxTest, ALostBatchIsAGapAtTheBeginningOfAStream) {
  Add(3);
  ASSERT_TRUE(SpoolAll().ok());
  TruncateSpool(10);
  ASSERT_TRUE(outbox_.Resume(0, kManyBytes).ok());
  Add(1);
  EXPECT_EQ(Sent(), (Numbers{0, 1}));
  EXPECT_EQ(Sent(), Numbers{});  // batch 2 cannot be read, 3 does not overtake
  EXPECT_FALSE(outbox_.must_reopen());
  ASSERT_TRUE(outbox_.Acknowledge(2).ok());
  EXPECT_TRUE(outbox_.must_reopen());
  outbox_.Disconnect();
  ASSERT_TRUE(outbox_.Resume(2, kManyBytes).ok());
  EXPECT_FALSE(outbox_.must_reopen());
  EXPECT_EQ(Sent(), Numbers{3});
  ASSERT_TRUE(outbox_.Acknowledge(4).ok());
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
}  // namespace traincheck
