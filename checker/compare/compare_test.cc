#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "checker/compare/process_comparison.h"
#include "checker/compare/recorded_run_for_testing.h"
#include "checker/compare/run_comparison.h"

namespace traincheck {
namespace {

struct Ends {
  ProcessEnd a = ProcessEnd::kClean;
  ProcessEnd b = ProcessEnd::kClean;
};

ProcessResult Compare(const RecordedRunOptions& a, const RecordedRunOptions& b,
                      const Ends& ends = {}) {
  ProcessComparison comparison({});
  const std::vector<StoredBatch> batches[] = {Record(a), Record(b)};
  size_t next[] = {0, 0};
  bool ended[] = {false, false};
  while (!ended[0] || !ended[1]) {
    for (const int i : {0, 1}) {
      const RunSide side = i == 0 ? RunSide::kA : RunSide::kB;
      if (!comparison.Wants(side)) continue;
      if (next[i] < batches[i].size()) {
        comparison.Consume(side, batches[i][next[i]++]);
      } else {
        comparison.End(side, i == 0 ? ends.a : ends.b);
        ended[i] = true;
      }
    }
  }
  return comparison.Finish();
}

ProcessResult CompareWith(const RecordedRunOptions& b) {
  return Compare({}, b);
}

std::string Rung(const ProcessResult& result) {
  return result.first.empty() ? "" : NameOf(result.first[0].place.rung);
}

uint64_t Missed(const ComparisonCoverage& coverage, const std::string& what,
                const std::string& why) {
  const auto found = coverage.not_compared.find({what, why});
  return found == coverage.not_compared.end() ? 0 : found->second.count;
}

TEST(Compare, ARunIsAsItself) {
  const ProcessResult result = CompareWith({});
  EXPECT_TRUE(result.first.empty()) << result.first[0].what;
  EXPECT_EQ(result.coverage.whole_steps, 6u);
  EXPECT_EQ(result.steps_a, 6u);
  EXPECT_EQ(result.steps_b, 6u);
  EXPECT_EQ(result.coverage.calls, 6u * 6);
  EXPECT_EQ(result.coverage.weights, 6u * 2);
  EXPECT_EQ(result.coverage.gradients, 6u);
  EXPECT_EQ(result.coverage.generators, 6u);
  EXPECT_EQ(result.coverage.batches, 6u);
  EXPECT_TRUE(result.coverage.not_compared.empty());
}

TEST(Compare, IdsStoragesAndBatchesAreNoDifference) {
  for (const uint64_t steps : {1u, 2u, 100u}) {
    RecordedRunOptions other;
    other.other_ids = true;
    other.steps_per_batch = steps;
    const ProcessResult result = CompareWith(other);
    EXPECT_TRUE(result.first.empty()) << result.first[0].what;
    EXPECT_EQ(result.coverage.whole_steps, 6u);
  }
}

struct FaultCase {
  RunFault fault;
  const char* rung;
  const char* what;
  const char* a;
  const char* b;
};

std::ostream& operator<<(std::ostream& out, const FaultCase& fault) {
  return out << fault.rung << " " << fault.what;
}

class CompareFault : public testing::TestWithParam<FaultCase> {};

TEST_P(CompareFault, IsNamedWithItsStepAndRung) {
  const FaultCase& fault = GetParam();
  const ProcessResult result = CompareWith({.fault = fault.fault});
  ASSERT_FALSE(result.first.empty());
  const Difference& first = result.first[0];
  EXPECT_EQ(first.step, fault.fault == RunFault::kHeld         ? 0u
                        : fault.fault == RunFault::kCheckpoint ? 5u
                                                               : 3u);
  EXPECT_STREQ(NameOf(first.place.rung), fault.rung);
  EXPECT_EQ(first.what, fault.what);
  EXPECT_EQ(first.a, fault.a);
  EXPECT_EQ(first.b, fault.b);
}

INSTANTIATE_TEST_SUITE_P(
    Rungs, CompareFault,
    testing::Values(
        FaultCase{RunFault::kHeld, "setup",
                  "what SGD holds in parameter group 0",
                  "2 tensors, only here: Net.fc.bias", "1 tensor"},
        FaultCase{RunFault::kRate, "setup", "lr of SGD, parameter group 0",
                  "0.1", "0.2"},
        FaultCase{RunFault::kWeights, "weights",
                  "Net.fc.weight as a training forward begins",
                  "content 0000000000000faa", "content 0000000000000fab"},
        FaultCase{RunFault::kMode, "mode",
                  "the mode of the module in pkg.Net.forward of Net",
                  "training", "evaluation"},
        FaultCase{RunFault::kGenerator, "mode",
                  "generator.torch.cpu as a training forward begins",
                  "content 0000000000000fb4", "content 0000000000000fb5"},
        FaultCase{RunFault::kData, "data",
                  "DataLoader.indices as a batch is fetched",
                  "content 0000000000000fd2", "content 0000000000000fd3"},
        FaultCase{RunFault::kNoClear, "call",
                  "the calls of torch.optim.sgd.SGD.zero_grad", "called once",
                  "not called"},
        FaultCase{
            RunFault::kOrder, "call", "the order of calls",
            "torch.optim.sgd.SGD.zero_grad before pkg.Net.forward of Net",
            "pkg.Net.forward of Net before torch.optim.sgd.SGD.zero_grad"},
        FaultCase{RunFault::kArgument, "call",
                  "the argument slope of torch.nn.functional.relu", "0.1",
                  "0.2"},
        FaultCase{RunFault::kResult, "result",
                  "what torch.nn.functional.relu returns", "1", "2"},
        FaultCase{RunFault::kCollective, "collective",
                  "the collective torch.distributed.all_reduce",
                  "number 3 of the group of ranks 0, 1",
                  "number 3 of the group of ranks 0"},
        FaultCase{RunFault::kGradient, "gradient",
                  "the gradient of Net.fc.weight after the backward",
                  "content 0000000000000fbe", "content 0000000000000fbf"},
        FaultCase{RunFault::kUpdate, "update",
                  "Net.fc.weight after the optimizer's step",
                  "content 0000000000000fc8", "content 0000000000000fc9"},
        FaultCase{RunFault::kCheckpoint, "checkpoint",
                  "the entry fc.weight that is saved",
                  "float32 [], content 00000000000017ac",
                  "float32 [], content 00000000000017ad"}));

TEST(Compare, NamesTheLineAndWhatFollowed) {
  const ProcessResult result = CompareWith({.fault = RunFault::kRate});
  ASSERT_FALSE(result.first.empty());
  EXPECT_EQ(result.counts.at(StepRung::kUpdate), 1u);
  ASSERT_TRUE(result.variables_first.has_value());
  EXPECT_EQ(result.variables_first->step, 3u);
  EXPECT_EQ(result.variables_first->counts.different, 1u);
  EXPECT_EQ(result.variables_last->step, 5u);
  EXPECT_EQ(result.steps_behind, 2u);
  EXPECT_EQ(result.steps_behind_different, 2u);
  const ProcessResult call = CompareWith({.fault = RunFault::kArgument});
  EXPECT_EQ(call.first[0].site_a, "net.py:8");
}

TEST(Compare, ACallThatIsMissingMakesNoOtherDifferent) {
  const ProcessResult result = CompareWith({.fault = RunFault::kNoClear});
  EXPECT_EQ(result.counts.at(StepRung::kCall), 1u);
  EXPECT_EQ(result.counts.count(StepRung::kResult), 0u);
}

TEST(Compare, WhatOneRunDoesNotRecordIsUnknown) {
  const ProcessResult result = CompareWith({.records_relu = false});
  EXPECT_TRUE(result.first.empty());
  EXPECT_EQ(Missed(result.coverage, "calls of functions", kInAOnly), 6u);
}

TEST(Compare, MissingRecordsAreUnknownAndTheCauseIsNotClaimed) {
  const ProcessResult result =
      CompareWith({.fault = RunFault::kUpdate, .lost_in = 3});
  ASSERT_FALSE(result.first.empty());
  EXPECT_EQ(result.first[0].step, 4u);
  EXPECT_EQ(Rung(result), "weights");
  uint64_t missed = 0;
  for (const auto& [key, one] : result.coverage.not_compared) {
    if (key.first == "steps") missed += one.count;
  }
  EXPECT_GE(missed, 1u);
}

TEST(Compare, WhatIsRecordedIsUnknownBehindMissingRecords) {
  // Ended by others, so that the number of steps says nothing.
  const Ends ends = {.b = ProcessEnd::kDied};
  const ProcessResult functions =
      Compare({}, {.lost_in = 2, .less_behind = true}, ends);
  EXPECT_TRUE(functions.first.empty()) << functions.first[0].what;
  EXPECT_EQ(Missed(functions.coverage, "calls of functions", kInAOnly), 2u);
  const ProcessResult sampled = Compare(
      {}, {.lost_in = 2, .less_behind = true, .skeleton_until = 1}, ends);
  EXPECT_TRUE(sampled.first.empty()) << sampled.first[0].what;
  EXPECT_EQ(sampled.coverage.skeleton_steps, 1u + 2u);
}

TEST(Compare, StepsOfTheSkeletonAreComparedByIt) {
  const ProcessResult equal = CompareWith({.skeleton_until = 2});
  EXPECT_TRUE(equal.first.empty()) << equal.first[0].what;
  EXPECT_EQ(equal.coverage.skeleton_steps, 2u);
  EXPECT_EQ(equal.coverage.whole_steps, 4u);
  // A call of the skeleton is missed there all the same.
  const ProcessResult clear = CompareWith(
      {.fault = RunFault::kNoClear, .fault_step = 1, .skeleton_until = 4});
  EXPECT_EQ(Rung(clear), "call");
  EXPECT_EQ(clear.first[0].step, 1u);
  // What was not recorded shows by its effect, in the first step that was.
  const ProcessResult rate = CompareWith(
      {.fault = RunFault::kUpdate, .fault_step = 1, .skeleton_until = 4});
  EXPECT_EQ(Rung(rate), "weights");
  EXPECT_EQ(rate.first[0].step, 4u);
}

TEST(Compare, UnreadableIsUnknown) {
  const ProcessResult result = CompareWith(
      {.fault = RunFault::kGenerator, .fault_step = 5, .unreadable_in = 5});
  EXPECT_TRUE(result.first.empty());
  EXPECT_EQ(Missed(result.coverage, "random generators",
                   "could not be read, or it was not their turn"),
            1u);
}

TEST(Compare, AGeneratorThatWasNeverAlikeIsNotCompared) {
  const ProcessResult never =
      CompareWith({.fault = RunFault::kUnseeded, .fault_step = 0});
  EXPECT_TRUE(never.first.empty());
  EXPECT_EQ(never.coverage.generators, 0u);
  EXPECT_EQ(Missed(never.coverage, "random generators",
                   "differ from the start: they were not seeded alike"),
            6u);
  const ProcessResult later = CompareWith({.fault = RunFault::kUnseeded});
  EXPECT_EQ(Rung(later), "mode");
  EXPECT_EQ(later.first[0].step, 3u);
}

TEST(Compare, FewerStepsAreADifferenceIfTheProgramMeantThem) {
  const ProcessResult clean = CompareWith({.steps = 4});
  EXPECT_EQ(Rung(clean), "totals");
  EXPECT_EQ(clean.first[0].step, 4u);
  EXPECT_EQ(clean.first[0].b, "4 steps, then it ended in order");
  const ProcessResult killed =
      Compare({}, {.steps = 4}, {.b = ProcessEnd::kDied});
  EXPECT_TRUE(killed.first.empty());
  EXPECT_EQ(Missed(killed.coverage, "steps", "run B had ended"), 2u);
  EXPECT_EQ(killed.steps_b, 4u);
}

TEST(CompareRuns, TheFirstRankLeadsAndOthersJoinIt) {
  RunComparison comparison(2, 2);
  comparison.AddRank(0, CompareWith({.fault = RunFault::kUpdate}));
  comparison.AddRank(1, CompareWith({.fault = RunFault::kGradient}));
  const ComparisonResult result = comparison.Finish();
  ASSERT_FALSE(result.first.empty());
  EXPECT_STREQ(NameOf(result.first[0].place.rung), "gradient");
  EXPECT_EQ(result.first[0].ranks, std::vector{1});
  ASSERT_EQ(result.first.size(), 2u);
  EXPECT_EQ(result.first[1].ranks, (std::vector{0, 1}));
  EXPECT_EQ(result.ranks[0].first_step, 3u);
}

TEST(CompareRuns, AnotherWorldIsSaidBeforeTheFirstStep) {
  RunComparison comparison(2, 4);
  comparison.AddRank(0, CompareWith({}));
  comparison.AddLone(RunSide::kB, "ranks", "rank 2");
  const ComparisonResult result = comparison.Finish();
  ASSERT_EQ(result.before.size(), 1u);
  EXPECT_FALSE(result.before[0].step.has_value());
  EXPECT_EQ(result.before[0].what, "the number of ranks");
  EXPECT_EQ(result.before[0].b, "4 ranks");
  EXPECT_TRUE(result.first.empty());
  EXPECT_TRUE(result.different());
  EXPECT_EQ(Missed(result.coverage, "ranks", kInBOnly), 1u);
}

TEST(CompareRuns, NothingComparedIsNoAgreement) {
  RunComparison comparison(1, 1);
  comparison.AddLone(RunSide::kA, "ranks", "rank 0");
  const ComparisonResult result = comparison.Finish();
  EXPECT_FALSE(result.compared());
  EXPECT_FALSE(result.different());
}

}  // namespace
}  // namespace traincheck
