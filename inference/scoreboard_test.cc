#include "inference/scoreboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace traincheck {
namespace {

Verdict Make(Outcome outcome, bool varied = true) {
  Verdict verdict;
  verdict.outcome = outcome;
  verdict.varied = varied;
  return verdict;
}

TEST(Score, MustBeDecidedInEveryRunThatHasTheSubject) {
  Score score;
  EXPECT_FALSE(score.seen());
  score.Add("run-1", "cnn", Make(Outcome::kUnknown));
  EXPECT_TRUE(score.seen());
  EXPECT_FALSE(score.DecidedEverywhere());
  score.Add("run-1", "cnn", Make(Outcome::kPass));
  EXPECT_TRUE(score.DecidedEverywhere());
  score.Add("run-2", "mlp", Make(Outcome::kUnknown));
  EXPECT_FALSE(score.DecidedEverywhere());
}

TEST(Score, MustHaveBeenRefutable) {
  Score score;
  for (int i = 0; i < 5; ++i) {
    score.Add("run-1", "cnn", Make(Outcome::kPass, /*varied=*/false));
  }
  EXPECT_FALSE(score.Refutable());
  score.Add("run-1", "cnn", Make(Outcome::kPass));
  EXPECT_TRUE(score.Refutable());
}

TEST(Score, AWindowToldAgainCountsOnce) {
  Score score;
  Verdict verdict = Make(Outcome::kViolated);
  score.Add("run-1", "cnn", verdict);
  verdict.again = true;
  score.Add("run-1", "cnn", verdict);
  EXPECT_EQ(score.violated(), 1u);
}

TEST(Score, KeptExamplesDependOnTheExamplesAlone) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(i);
  std::mt19937 random(3);
  std::vector<double> first;
  for (int round = 0; round < 3; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    Score score;
    for (double value : values) score.AddExample("cnn", {true, {value}});
    std::vector<double> kept;
    for (const WeightedExample& example : score.Examples()) {
      kept.push_back(std::get<double>(example.facts[0]));
    }
    EXPECT_EQ(kept.size(), Score::kMaxExamples);
    if (round == 0) first = kept;
    EXPECT_EQ(kept, first);
  }
}

}  // namespace
}  // namespace traincheck
