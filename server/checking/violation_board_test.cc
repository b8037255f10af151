#include "server/checking/violation_board.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

Violation MakeViolation(const std::string& id, const std::string& run,
                        uint64_t count) {
  Violation violation;
  violation.id = id;
  violation.run = run;
  violation.relation = "Consistent";
  violation.first_step = 3;
  violation.count = count;
  violation.ranks = {0, 1};
  return violation;
}

class ViolationBoardTest : public testing::Test {
 protected:
  ViolationBoardTest()
      : dir_(testing::TempDir() + "/board-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    Load();
  }
  void Load() {
    store_.reset();  // closes it
    board_.reset();
    store_ = *OpenRocksdbStore(dir_);
    board_ = *ViolationBoard::Load(store_.get(), [this] { return now_; });
  }

  const std::string dir_;
  absl::Time now_ = absl::FromUnixSeconds(100);
  // Waits until what was posted is durable.
  void Sync() {
    WriteSet writes;
    writes.Put(Table::kMeta, "test", "");
    ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  }

  v1::Violation Found(const std::string& id) const {
    return board_->Find(id)->value();
  }
  bool IsThere(const std::string& id) const {
    return board_->Find(id)->has_value();
  }

  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<Store> store_;
};

TEST_F(ViolationBoardTest, KeepsViolationsOverARestart) {
  board_->Post(1, {MakeViolation("a", "run", 1)});
  board_->Post(2, {MakeViolation("b", "other", 1)});
  const v1::Violation before = Found("a");
  Load();
  EXPECT_EQ(Found("a").SerializeAsString(), before.SerializeAsString());
  EXPECT_EQ(board_->Runs(), (std::vector<std::string>{"run", "other"}));
  EXPECT_EQ(board_->List("run")->size(), 1u);
  EXPECT_EQ(board_->Revision(), 2u);
}

TEST_F(ViolationBoardTest, TheSameAgainChangesNothing) {
  board_->Post(1, {MakeViolation("a", "run", 2)});
  const uint64_t revision = Found("a").revision();
  now_ += absl::Hours(1);
  board_->Post(1, {MakeViolation("a", "run", 2)});
  EXPECT_EQ(Found("a").revision(), revision);
  EXPECT_EQ(Found("a").count(), 2u);
}

TEST_F(ViolationBoardTest, ACheckThatGoesOverItAgainOnlyAdds) {
  board_->Post(1, {MakeViolation("a", "run", 2)});
  board_->Post(1, {MakeViolation("a", "run", 1), MakeViolation("b", "run", 1)},
               ViolationBoard::Known::kKeep);
  EXPECT_EQ(Found("a").count(), 2u);
  EXPECT_TRUE(IsThere("b"));
  board_->Post(1, {MakeViolation("a", "run", 3)}, ViolationBoard::Known::kKeep);
  EXPECT_EQ(Found("a").count(), 3u);
  // Complete records decide, also for less.
  board_->Post(1, {MakeViolation("a", "run", 1)});
  EXPECT_EQ(Found("a").count(), 1u);
}

TEST_F(ViolationBoardTest, WhatCompleteRecordsDoNotShowIsTakenBack) {
  board_->Post(1, {MakeViolation("a", "run", 1), MakeViolation("b", "run", 1)});
  board_->Post(2, {MakeViolation("c", "other", 1)});
  board_->KeepOnly("run", {MakeViolation("a", "run", 1)});
  EXPECT_TRUE(IsThere("a"));
  EXPECT_FALSE(IsThere("b"));
  EXPECT_TRUE(IsThere("c"));
  board_->KeepOnly("other", {});
  Load();
  EXPECT_EQ(board_->List("run")->size(), 1u);
  EXPECT_EQ(board_->List("other")->size(), 0u);
  ASSERT_TRUE(board_->TakeOffShelf("run").ok());
  // The revision of what is gone is not used again.
  board_->Post(1, {MakeViolation("d", "run", 1)});
  EXPECT_EQ(Found("d").revision(), 4u);
}

TEST_F(ViolationBoardTest, WhatCouldNotBeReadTakesNothingBack) {
  Violation of_next = MakeViolation("b", "run", 1);
  of_next.attempt = 1;
  board_->Post(1, {MakeViolation("a", "run", 1), of_next});
  board_->KeepOnly("run", {}, {0});
  EXPECT_TRUE(IsThere("a"));
  EXPECT_FALSE(IsThere("b"));
}

TEST_F(ViolationBoardTest, WritesWhatBelongsToItTogether) {
  int added = 0;
  const auto more = [&](WriteSet* writes) {
    ++added;
    writes->Put(Table::kMeta, "more", "1");
  };
  WriteSet writes;
  writes.Put(Table::kMeta, "always", "1");
  board_->Post(1, {}, ViolationBoard::Known::kUpdate, more, std::move(writes));
  EXPECT_EQ(added, 0);
  board_->Post(1, {MakeViolation("a", "run", 1)},
               ViolationBoard::Known::kUpdate, more);
  EXPECT_EQ(added, 1);
  Load();
  EXPECT_TRUE((*store_->Get(Table::kMeta, "always")).has_value());
  EXPECT_TRUE((*store_->Get(Table::kMeta, "more")).has_value());
}

TEST_F(ViolationBoardTest, AChangeKeepsTheTimeOfFirstSight) {
  board_->Post(1, {MakeViolation("a", "run", 1)});
  now_ += absl::Hours(1);
  board_->Post(1, {MakeViolation("a", "run", 2)});
  const v1::Violation violation = Found("a");
  EXPECT_EQ(violation.count(), 2u);
  EXPECT_EQ(violation.first_seen_unix_ns(), 100'000'000'000u);
}

TEST_F(ViolationBoardTest, WatchersGetEachChangeOnce) {
  board_->Post(1, {MakeViolation("a", "run", 1)});
  board_->Post(2, {MakeViolation("b", "x", 1)});
  Sync();
  auto changes = *board_->ChangesAfter(0, "run");
  ASSERT_EQ(changes.violations.size(), 1u);
  EXPECT_EQ(changes.violations[0].id(), "a");
  // Also past what concerns others, so that waiting for more does wait.
  EXPECT_EQ(changes.revision, 2u);
  EXPECT_TRUE(board_->ChangesAfter(2, "run")->violations.empty());
  board_->Post(1, {MakeViolation("a", "run", 2)});
  Sync();
  changes = *board_->ChangesAfter(2, "run");
  ASSERT_EQ(changes.violations.size(), 1u);
  EXPECT_EQ(changes.violations[0].count(), 2u);
  board_->WaitForChange(2, absl::InfiniteDuration());  // is there already
}

// A watcher that is slow holds no more than it asked for.
TEST_F(ViolationBoardTest, ChangesComeInPortions) {
  board_->Post(1, {MakeViolation("a", "run", 1)});
  board_->Post(2, {MakeViolation("b", "x", 1)});
  board_->Post(1, {MakeViolation("c", "run", 1)});
  board_->Post(2, {MakeViolation("d", "x", 1)});
  Sync();
  auto changes = *board_->ChangesAfter(0, "run", 1);
  ASSERT_EQ(changes.violations.size(), 1u);
  EXPECT_EQ(changes.violations[0].id(), "a");
  EXPECT_FALSE(changes.complete);
  changes = *board_->ChangesAfter(changes.revision, "run", 1);
  ASSERT_EQ(changes.violations.size(), 1u);
  EXPECT_EQ(changes.violations[0].id(), "c");
  EXPECT_TRUE(changes.complete);
  EXPECT_EQ(changes.revision, 4u);
}

// As it was in memory, for those who list, look for one, watch and count.
TEST_F(ViolationBoardTest, WhatIsShelvedIsReadFromTheStore) {
  Violation advice = MakeViolation("b", "run", 1);
  advice.open = true;
  advice.notes.advice = true;
  advice.grouped = {.incident = "b", .cause = "b", .alerts = false};
  board_->Post(1, {MakeViolation("a", "run", 1), advice});
  board_->Post(2, {MakeViolation("c", "other", 1)});
  Sync();
  const auto all = *board_->List("run");
  const ViolationBoard::Counts counts = board_->Count();
  EXPECT_EQ(board_->RunsInMemory(), 2u);
  board_->Shelve("run");
  EXPECT_EQ(board_->RunsInMemory(), 1u);
  const auto shelved = *board_->List("run");
  ASSERT_EQ(shelved.size(), 2u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(shelved[i].SerializeAsString(), all[i].SerializeAsString());
  }
  EXPECT_EQ(Found("b").SerializeAsString(), all[1].SerializeAsString());
  const ViolationBoard::Counts now = board_->Count();
  EXPECT_EQ(now.violations.alerts, 2u);
  EXPECT_EQ(now.violations.advice, 1u);
  EXPECT_EQ(now.open_incidents.alerts, counts.open_incidents.alerts);
  EXPECT_EQ(now.open_incidents.advice, counts.open_incidents.advice);
  EXPECT_GE(now.open_incidents.advice, 1u);
  EXPECT_EQ(now.found.alerts, 2u);
  EXPECT_EQ(now.found.advice, 1u);
  for (const std::string run : {"", "run"}) {
    const auto first = *board_->ChangesAfter(0, run, 1);
    ASSERT_EQ(first.violations.size(), 1u);
    EXPECT_EQ(first.violations[0].id(), "a");
    EXPECT_FALSE(first.complete);
    const auto rest = *board_->ChangesAfter(first.revision, run);
    EXPECT_EQ(rest.violations.size(), run.empty() ? 2u : 1u);
    EXPECT_EQ(rest.violations[0].id(), "b");
    EXPECT_TRUE(rest.complete);
  }
}

TEST_F(ViolationBoardTest, WhatIsNotInTheStoreYetIsNotShelved) {
  board_->Post(1, {MakeViolation("a", "run", 1)});
  board_->Shelve("run");
  EXPECT_EQ(Found("a").count(), 1u);
  Sync();
  EXPECT_EQ(board_->RunsInMemory(), 0u);
  EXPECT_EQ(Found("a").count(), 1u);
}

TEST_F(ViolationBoardTest, ACheckThatBeginsAgainFindsWhatWasShelved) {
  board_->Post(1, {MakeViolation("a", "run", 2), MakeViolation("b", "run", 1)});
  Sync();
  board_->Shelve("run");
  ASSERT_TRUE(board_->TakeOffShelf("run").ok());
  EXPECT_EQ(board_->RunsInMemory(), 1u);
  const uint64_t revision = board_->Revision();
  board_->Post(1, {MakeViolation("a", "run", 2)});
  EXPECT_EQ(Found("a").revision(), 1u);
  board_->KeepOnly("run", {MakeViolation("a", "run", 2)});
  Sync();
  board_->Shelve("run");
  EXPECT_EQ(board_->List("run")->size(), 1u);
  EXPECT_FALSE(IsThere("b"));
  EXPECT_EQ(board_->Count().violations.alerts, 1u);
  EXPECT_EQ(board_->Revision(), revision);
}

// While it is being shelved, too.
TEST_F(ViolationBoardTest, ADeletedRunLeavesNothing) {
  board_->Post(1, {MakeViolation("a", "run", 1)});
  Sync();
  board_->Shelve("run");
  board_->Post(2, {MakeViolation("b", "other", 1)});
  board_->Shelve("other");
  board_->Remove("run");
  board_->Remove("other");
  Sync();
  EXPECT_FALSE(IsThere("a"));
  EXPECT_TRUE(board_->List("other")->empty());
  EXPECT_TRUE(board_->Runs().empty());
  EXPECT_EQ(board_->Count().violations.alerts, 0u);
  EXPECT_TRUE(board_->ChangesAfter(0, "")->violations.empty());
}

TEST_F(ViolationBoardTest, DamageIsAnError) {
  WriteSet writes;
  writes.Put(Table::kViolations, "short", "");
  ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  EXPECT_TRUE(absl::IsDataLoss(ViolationBoard::Load(store_.get()).status()));
}

}  // namespace
}  // namespace traincheck::server
