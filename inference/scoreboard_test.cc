#include "inference/scoreboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace traincheck {
namespace {

Verdict Make(Outcome outcome, uint64_t process = 0, uint32_t object = 1) {
  Verdict verdict;
  verdict.outcome = outcome;
  verdict.unit = process << 32 | object;
  return verdict;
}

RunScore Of(const std::vector<Verdict>& verdicts) {
  RunScore score;
  for (const Verdict& verdict : verdicts) score.Add(verdict);
  return score;
}

TEST(Score, MustBeDecidedInEveryRunThatHasTheSubject) {
  Score score;
  EXPECT_FALSE(score.seen());
  score.Add("run-0", "cnn", Of({}));
  EXPECT_FALSE(score.seen());
  score.Add("run-1", "cnn",
            Of({Make(Outcome::kUnknown), Make(Outcome::kPass)}));
  EXPECT_TRUE(score.seen());
  EXPECT_TRUE(score.DecidedEverywhere());
  score.Add("run-2", "mlp", Of({Make(Outcome::kUnknown)}));
  EXPECT_FALSE(score.DecidedEverywhere());
  EXPECT_EQ(score.Programs(), (std::vector<std::string>{"cnn"}));
}

TEST(ExampleTable, SmallNumbersThatDifferAreDifferentExamples) {
  ExampleTable table;
  for (const double number : {1e-7, 2e-7, 1e-7}) table.Add({true, {number}});
  EXPECT_EQ(table.Take().size(), 2u);
}

TEST(RunScore, AWindowToldAgainCountsOnce) {
  Verdict verdict = Make(Outcome::kViolated);
  RunScore score;
  score.Add(verdict);
  verdict.again = true;
  score.Add(verdict);
  EXPECT_EQ(score.violated, 1u);
}

TEST(RunScore, RanksOfOneProgramAreNoMoreEvidenceThanOne) {
  RunScore score;
  for (int step = 0; step < 5; ++step) {
    for (uint64_t process = 0; process < 8; ++process) {
      score.Add(Make(Outcome::kPass, process));
    }
  }
  EXPECT_EQ(score.passed, 40u);
  EXPECT_EQ(score.varied, 5u);
  EXPECT_EQ(score.units.size(), 1u);
  score.Add(Make(Outcome::kPass, /*process=*/0, /*object=*/2));
  EXPECT_EQ(score.units.size(), 2u);
}

TEST(RunScore, EachValueComparedIsATrial) {
  Verdict verdict = Make(Outcome::kPass);
  verdict.trials = 20;
  RunScore score;
  score.Add(verdict);
  verdict.varied = false;
  score.Add(verdict);
  EXPECT_EQ(score.varied, 20u);
  EXPECT_EQ(score.passed, 2u);
}

TEST(RunScore, FirstWindowThatShowedIt) {
  RunScore score;
  for (const int64_t step : {7, 3, 5}) {
    Verdict verdict = Make(Outcome::kPass);
    verdict.step = step;
    score.Add(verdict);
  }
  EXPECT_EQ(score.first.step, 3);
}

TEST(Chance, HalvesWithEachTrial) {
  EXPECT_EQ(ChanceOf(0), 1.0);
  EXPECT_GT(ChanceOf(6), 0.01);
  EXPECT_LT(ChanceOf(7), 0.01);
}

TEST(ExampleTable, KeptExamplesDependOnTheExamplesAlone) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(i);
  std::mt19937 random(3);
  std::vector<double> first;
  for (int round = 0; round < 3; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    // In two tables, as two threads would.
    ExampleTable tables[2];
    for (size_t i = 0; i < values.size(); ++i) {
      tables[i % 2].Add({true, {values[i]}});
    }
    tables[0].Merge(tables[1]);
    std::vector<double> kept;
    for (const WeightedExample& example : tables[0].Take()) {
      kept.push_back(std::get<double>(example.facts[0]));
    }
    EXPECT_EQ(kept.size(), ExampleTable::kMaxExamples);
    if (round == 0) first = kept;
    EXPECT_EQ(kept, first);
  }
}

TEST(Score, ExamplesWithoutOneProgram) {
  RunScore training = Of({Make(Outcome::kPass)});
  training.examples.Add({true, {std::string("training")}});
  RunScore evaluation = Of({Make(Outcome::kViolated)});
  evaluation.examples.Add({false, {std::string("evaluation")}});
  Score score;
  score.Add("run-1", "cnn", training);
  score.Add("run-2", "mlp", evaluation);
  EXPECT_EQ(score.Examples().size(), 2u);
  ASSERT_EQ(score.Examples("mlp").size(), 1u);
  EXPECT_TRUE(score.Examples("mlp")[0].holds);
  ASSERT_EQ(score.ExamplesOf("mlp").size(), 1u);
  EXPECT_FALSE(score.ExamplesOf("mlp")[0].holds);
}

}  // namespace
}  // namespace traincheck
