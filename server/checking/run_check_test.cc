// Which process a check reads next, whom it waits for, when it must begin anew
// and when it has then judged again what was reported.
#include "server/checking/run_check.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "invariants/sets/invariant_for_testing.h"
#include "invariants/testing/synthetic_training.h"
#include "server/checking/reported_so_far.h"
#include "server/ingest/test_batches.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

constexpr uint64_t kSteps = 200;

InvariantSet EqualParameters() {
  InvariantSet set;
  set.name = "rules";
  set.invariants = {NewInvariant(
      "Consistent",
      {{"across", "ranks"}, {"of", "parameter.data"}, {"point", "post_step"}})};
  return set;
}

class RunCheckTest : public testing::Test {
 protected:
  RunCheckTest()
      : dir_(testing::TempDir() + "/run-check-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    store_ = *OpenRocksdbStore(dir_);
    run_.id = "run";
    run_.number = 1;
    check_ = std::make_unique<RunCheck>(store_.get(), run_, set_);
  }

  // A rank of two that streams; a batch a step. What it recorded names attempt
  // 0, as that of every start does whose launcher counts none.
  void AddRank(int32_t rank, uint64_t steps, uint32_t attempt = 0,
               std::optional<int> error_step = std::nullopt) {
    TrainingOptions options;
    options.steps = kSteps;
    if (error_step.has_value()) {
      options.fault = TrainingFault::kBypassWrapper;
      options.fault_step = *error_step;
    }
    RunView::Process process;
    process.number = static_cast<uint32_t>(run_.processes.size());
    process.next_batch = steps;
    process.connected = true;
    process.is_main = true;
    process.rank = rank;
    process.world = 2;
    process.attempt = attempt;
    process.name = "rank " + std::to_string(rank);
    WriteSet writes;
    for (const StoredBatch& batch : TrainRank(options, rank)) {
      std::vector<TestSlice> slices;
      size_t at = 0;
      for (const RingSlice& slice : batch.slices) {
        const size_t size = slice.to - slice.from;
        slices.push_back({.ring = slice.ring,
                          .from = slice.from,
                          .bytes = batch.plain.substr(at, size),
                          .records = slice.records});
        at += size;
      }
      writes.Put(Table::kBatches,
                 BatchKey({run_.number, process.number, batch.number}),
                 MakeBatch(batch.number, slices).SerializeAsString());
    }
    ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
    run_.processes.push_back(process);
  }
  void ReadAll() {
    while (true) {
      ASSERT_EQ(check_->WhyAnew(run_), "");
      const absl::StatusOr<bool> more = check_->Advance(run_);
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more) break;
    }
    if (check_->all_read()) check_->End();
  }
  // The check begins anew; what it has judged so far, as the store keeps it.
  ReportedSoFar BeginAnew() {
    ReportedSoFar reported;
    reported.Add(run_, *check_);
    check_ = std::make_unique<RunCheck>(store_.get(), run_, set_);
    stored::Check stored;
    reported.Store(&stored);
    return ReportedSoFar(stored);
  }
  uint64_t StepOf(uint32_t process) const {
    return check_->checker().StepOf(process);
  }
  // All have ended in order, but those of which `ends` says otherwise.
  void EndRun(const std::map<uint32_t, ProcessEnd>& ends = {}) {
    for (RunView::Process& process : run_.processes) {
      const auto end = ends.find(process.number);
      process.end = end == ends.end() ? ProcessEnd::kClean : end->second;
      process.connected = false;
    }
    run_.ended = true;
    ReadAll();
    EXPECT_TRUE(check_->finished());
  }
  std::map<std::string, uint32_t> Unknown() const {
    return check_->checker().Summary().unknown;
  }

  const std::string dir_;
  const InvariantSet set_ = EqualParameters();
  std::unique_ptr<Store> store_;
  RunView run_;
  std::unique_ptr<RunCheck> check_;
};

TEST_F(RunCheckTest, ReadsNoRankFarAheadOfTheSlowest) {
  AddRank(0, kSteps);
  AddRank(1, 10);
  ReadAll();
  const uint64_t slow = StepOf(1);
  EXPECT_LE(StepOf(0), slow + RunCheck::kMaxAheadSteps);
  EXPECT_GE(StepOf(0), slow + RunCheck::kMaxAheadSteps - 1);
  run_.processes[1].next_batch = 20;
  ReadAll();
  EXPECT_EQ(StepOf(0), slow + 10 + RunCheck::kMaxAheadSteps);
  // Who is lost holds nobody back.
  run_.processes[1].end = ProcessEnd::kLost;
  ReadAll();
  EXPECT_GE(StepOf(0), kSteps - 1);
}

TEST_F(RunCheckTest, ARankThatNeverCameHoldsNobodyBack) {
  AddRank(0, kSteps);
  ReadAll();
  EXPECT_GE(StepOf(0), kSteps - 1);
  EXPECT_EQ(Unknown().count("rank 1 never announced itself"), 1u);
  // What waits for it is not kept.
  const size_t bytes = check_->Save().checker().size();
  EXPECT_LT(bytes, size_t{20} << 10);

  AddRank(1, 1);
  EXPECT_EQ(check_->WhyAnew(run_), "rank 1 came after all");
}

TEST_F(RunCheckTest, ASavedOneGoesOnWhereItWas) {
  AddRank(0, 30);
  AddRank(1, 20);
  ReadAll();
  const stored::CheckSnapshot snapshot = check_->Save();
  const uint64_t batches = check_->batches();
  check_ = std::make_unique<RunCheck>(store_.get(), run_, set_);
  ASSERT_TRUE(check_->Restore(snapshot).ok());
  EXPECT_EQ(check_->batches(), batches);
  EXPECT_EQ(check_->Save().SerializeAsString(), snapshot.SerializeAsString());
  run_.processes[1].next_batch = 30;
  ReadAll();
  EXPECT_EQ(StepOf(1), StepOf(0));
}

TEST_F(RunCheckTest, ASnapshotThatDoesNotFitIsRefused) {
  AddRank(0, 5);
  ReadAll();
  const auto refuses = [&](const stored::CheckSnapshot& snapshot) {
    return !RunCheck(store_.get(), run_, set_).Restore(snapshot).ok();
  };
  stored::CheckSnapshot snapshot = check_->Save();
  EXPECT_FALSE(refuses(snapshot));
  snapshot.set_version(1);
  EXPECT_TRUE(refuses(snapshot));
  snapshot = check_->Save();
  snapshot.mutable_checker()->pop_back();
  EXPECT_TRUE(refuses(snapshot));
  snapshot = check_->Save();
  snapshot.set_plain_bytes(1u << 31);
  EXPECT_TRUE(refuses(snapshot));
  snapshot = check_->Save();
  snapshot.mutable_cursors(0)->set_end(9);
  EXPECT_TRUE(refuses(snapshot));
  EXPECT_TRUE(refuses({}));
}

TEST_F(RunCheckTest, WhatComesAfterAnEndBeginsAnew) {
  AddRank(0, 5);
  run_.processes[0].connected = false;
  run_.processes[0].end = ProcessEnd::kLost;
  ReadAll();
  EXPECT_EQ(check_->WhyAnew(run_), "");
  run_.processes[0].end = ProcessEnd::kClean;
  EXPECT_EQ(check_->WhyAnew(run_), "rank 0 is back");
  run_.processes[0].end = ProcessEnd::kLost;
  run_.processes[0].next_batch = 6;
  EXPECT_EQ(check_->WhyAnew(run_), "records of rank 0 came late");
}

TEST_F(RunCheckTest, ANewAttemptEndsTheOneBefore) {
  AddRank(0, 5);
  AddRank(1, 5);
  run_.processes[1].connected = false;
  ReadAll();
  EXPECT_EQ(Unknown().count("what the rule is about did not occur"), 0u);
  AddRank(0, 0);
  run_.processes[2].attempt = 1;
  ReadAll();
  // Rank 1 of the first attempt is not waited for, until it is heard again.
  EXPECT_EQ(check_->WhyAnew(run_), "");
  run_.processes[1].connected = true;
  EXPECT_EQ(check_->WhyAnew(run_), "rank 1 is back");
}

TEST_F(RunCheckTest, StartsAreJudgedEachForItself) {
  for (int32_t rank : {0, 1}) AddRank(rank, 10, 0);
  for (int32_t rank : {0, 1}) AddRank(rank, 30, 1, /*error_step=*/12);
  EndRun({{0, ProcessEnd::kDied}, {1, ProcessEnd::kDied}});
  const std::vector<Violation> found = check_->checker().Violations();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].attempt, 1u);
  EXPECT_EQ(found[0].first_step, 12);
}

// So that a job of a hundred starts is not in memory with all of them at once.
TEST_F(RunCheckTest, StartsAreReadOneAfterTheOther) {
  for (const uint32_t attempt : {1, 0}) {
    for (int32_t rank : {0, 1}) AddRank(rank, 30, attempt);
  }
  for (RunView::Process& process : run_.processes) {
    process.end = ProcessEnd::kDied;
    process.connected = false;
  }
  while (StepOf(0) == 0 && StepOf(1) == 0) {
    EXPECT_FALSE(check_->HasEnded(2) && check_->HasEnded(3));
    ASSERT_TRUE(check_->Advance(run_).ok());
  }
  EXPECT_TRUE(check_->HasEnded(2) && check_->HasEnded(3));
}

// Of the first start rank 1 never came, and its rank 0 was another model.
TEST_F(RunCheckTest, RanksOfTwoStartsAreNeverCompared) {
  AddRank(0, 30, 0, /*error_step=*/0);
  for (int32_t rank : {1, 0}) AddRank(rank, 30, 1);
  EndRun();
  EXPECT_TRUE(check_->checker().Violations().empty());
  EXPECT_EQ(check_->checker().Summary().decided, 1u);
}

TEST_F(RunCheckTest, WhatAnEarlierStartPassedSaysNothingOfTheNewest) {
  for (int32_t rank : {0, 1}) AddRank(rank, 30, 0);
  ReadAll();
  EXPECT_EQ(check_->checker().Summary().decided, 1u);
  AddRank(0, 30, 1);
  run_.processes[0].connected = run_.processes[1].connected = false;
  EndRun();
  EXPECT_EQ(check_->checker().Summary().decided, 0u);
  EXPECT_EQ(Unknown().count("attempt 1 was not judged: rank 1 never announced "
                            "itself"),
            1u);
}

TEST_F(RunCheckTest, AViolationStandsWhateverComesAfterIt) {
  for (int32_t rank : {0, 1}) AddRank(rank, 30, 0, /*error_step=*/5);
  AddRank(0, 30, 1);
  EndRun();
  const CheckSummary summary = check_->checker().Summary();
  EXPECT_EQ(summary.violated, 1u);
  EXPECT_EQ(summary.decided, 1u);
  EXPECT_EQ(summary.partly_unknown.size(), 1u);
}

TEST_F(RunCheckTest, AnAttemptThatIsSettledLateBeginsAnew) {
  AddRank(0, 5);
  AddRank(1, 0);
  ReadAll();
  // Nothing of it was read.
  run_.processes[1].attempt = 1;
  EXPECT_EQ(check_->WhyAnew(run_), "");
  run_.processes[0].attempt = 1;
  EXPECT_EQ(check_->WhyAnew(run_), "rank 0 belongs to attempt 1");
  const stored::CheckSnapshot snapshot = check_->Save();
  check_ = std::make_unique<RunCheck>(store_.get(), run_, set_);
  ASSERT_TRUE(check_->Restore(snapshot).ok());
  EXPECT_EQ(check_->WhyAnew(run_), "rank 0 belongs to attempt 1");
}

TEST_F(RunCheckTest, WhatWasReadIsJudgedAgainWhenItIsReadAgain) {
  AddRank(0, 20);
  AddRank(1, 20);
  ReadAll();
  const ReportedSoFar reported = BeginAnew();
  EXPECT_FALSE(reported.empty());
  ASSERT_TRUE(check_->Advance(run_).ok());  // a share of it
  EXPECT_FALSE(reported.ReachedBy(run_, *check_));
  ReadAll();
  EXPECT_TRUE(reported.ReachedBy(run_, *check_));
}

TEST_F(RunCheckTest, ARankThatSeemedLostMustComeAsFarAsTheOthersHadBeenJudged) {
  AddRank(0, 20);
  AddRank(1, 5);
  run_.processes[1].connected = false;
  run_.processes[1].end = ProcessEnd::kLost;
  ReadAll();
  run_.processes[1].connected = true;
  run_.processes[1].end.reset();
  ASSERT_EQ(check_->WhyAnew(run_), "rank 1 is back");
  const ReportedSoFar reported = BeginAnew();
  ReadAll();  // all that there is, and rank 0 waits
  EXPECT_FALSE(reported.ReachedBy(run_, *check_));
  run_.processes[1].next_batch = 15;
  ReadAll();
  EXPECT_FALSE(reported.ReachedBy(run_, *check_));
  run_.processes[1].next_batch = 22;
  ReadAll();
  EXPECT_TRUE(reported.ReachedBy(run_, *check_));
}

TEST_F(RunCheckTest, ARankThatSeemedLostAndEndsIsWaitedForNoMore) {
  AddRank(0, 20);
  AddRank(1, 5);
  run_.processes[1].end = ProcessEnd::kLost;
  ReadAll();
  run_.processes[1].end = ProcessEnd::kDied;
  const ReportedSoFar reported = BeginAnew();
  ReadAll();
  EXPECT_TRUE(reported.ReachedBy(run_, *check_));
}

TEST_F(RunCheckTest, ARankThatCameAfterAllMustComeAsFar) {
  AddRank(0, 100);
  ReadAll();
  AddRank(1, 5);
  ASSERT_EQ(check_->WhyAnew(run_), "rank 1 came after all");
  const ReportedSoFar reported = BeginAnew();
  ReadAll();
  EXPECT_FALSE(reported.ReachedBy(run_, *check_));
  run_.processes[1].next_batch = 110;
  ReadAll();
  EXPECT_TRUE(reported.ReachedBy(run_, *check_));
}

}  // namespace
}  // namespace traincheck::server
