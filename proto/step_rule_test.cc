#include "proto/step_rule.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

constexpr uint32_t kLoader = 3;

TEST(StepRule, PlainLoopWithLoaderClosesAtTheNextFetch) {
  StepRule rule;
  for (uint64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(rule.BatchFetched(kLoader), step > 0);
    EXPECT_EQ(rule.closed(), step);
    EXPECT_FALSE(rule.GradClear());
    EXPECT_FALSE(rule.TrainingForward());
    rule.Backward();
    EXPECT_FALSE(rule.OptimizerStep(1));
  }
  EXPECT_TRUE(rule.End());
  EXPECT_FALSE(rule.End());
  EXPECT_EQ(rule.closed(), 5u);
}

TEST(StepRule, LoopWithoutLoaderClosesAtGradClearOrForward) {
  StepRule rule;
  EXPECT_FALSE(rule.TrainingForward());
  rule.Backward();
  EXPECT_FALSE(rule.OptimizerStep(1));
  EXPECT_TRUE(rule.GradClear());
  EXPECT_FALSE(rule.TrainingForward());
  EXPECT_FALSE(rule.OptimizerStep(1));
  EXPECT_TRUE(rule.TrainingForward());
}

TEST(StepRule, MicroBatchesStayInside) {
  StepRule rule;
  rule.OptimizerMade();
  uint64_t closed = 0;
  for (int batch = 0; batch < 11; ++batch) {  // groups of 4, 4 and 3
    closed += rule.BatchFetched(kLoader);
    rule.TrainingForward();
    rule.Backward();
    if (batch % 4 == 3 || batch == 10) rule.OptimizerStep(1);
  }
  closed += rule.End();
  EXPECT_EQ(closed, 3u);
}

TEST(StepRule, TwoOptimizersShareAStep) {
  StepRule rule;
  // The first step may close between the two: nothing tells that more come.
  rule.OptimizerStep(1);
  rule.OptimizerStep(2);
  EXPECT_TRUE(rule.BatchFetched(kLoader));
  rule.OptimizerStep(1);
  EXPECT_FALSE(rule.GradClear());  // 2 stepped before and has not yet
  rule.OptimizerStep(2);
  EXPECT_TRUE(rule.BatchFetched(kLoader));
}

TEST(StepRule, ASecondStepOfOneOptimizerCloses) {
  StepRule rule;
  EXPECT_FALSE(rule.OptimizerStep(1));
  EXPECT_TRUE(rule.OptimizerStep(1));
  EXPECT_EQ(rule.closed(), 1u);
  // The second is of the step that it opened.
  EXPECT_TRUE(rule.GradClear());
}

TEST(StepRule, AStepThatIsClosedAheadIsNotClosedAgain) {
  StepRule rule;
  rule.OptimizerStep(1);
  EXPECT_TRUE(rule.CloseAhead());
  EXPECT_FALSE(rule.BatchFetched(5));
  EXPECT_FALSE(rule.GradClear());
  EXPECT_EQ(rule.closed(), 1u);
}

TEST(StepRule, ForwardBeforeAnyBackwardDoesNotCloseTheFirstStep) {
  StepRule rule;
  rule.OptimizerStep(1);
  EXPECT_FALSE(rule.TrainingForward());
  rule.Backward();
  EXPECT_TRUE(rule.TrainingForward());
}

TEST(StepRule, FetchesWithoutOptimizerStepsCloseNothing) {
  StepRule rule;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(rule.BatchFetched(kLoader));
  EXPECT_FALSE(rule.End());
  EXPECT_EQ(rule.closed(), 0u);
}

TEST(StepRule, WithoutOptimizerABackwardIsAStep) {
  StepRule rule;
  for (int batch = 0; batch < 3; ++batch) {
    EXPECT_EQ(rule.BatchFetched(kLoader), batch > 0);
    EXPECT_FALSE(rule.TrainingForward());
    rule.Backward();
  }
  EXPECT_TRUE(rule.IteratorEnd(kLoader));
  EXPECT_EQ(rule.closed(), 3u);
}

TEST(StepRule, WithoutBackwardABatchIsAStep) {
  StepRule rule;
  for (int batch = 0; batch < 3; ++batch) {
    EXPECT_EQ(rule.BatchFetched(kLoader), batch > 0);
    EXPECT_FALSE(rule.TrainingForward());
  }
  EXPECT_FALSE(rule.IteratorEnd(kLoader + 1));
  EXPECT_TRUE(rule.IteratorEnd(kLoader));
}

TEST(StepRule, OptimizerIsWaitedForUntilItsGradientsAreThrownAway) {
  StepRule rule;
  rule.OptimizerMade();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(rule.BatchFetched(kLoader));
    rule.Backward();
  }
  EXPECT_TRUE(rule.GradClear());
  rule.Backward();
  EXPECT_TRUE(rule.BatchFetched(kLoader));
}

TEST(StepRule, OptimizerIsWaitedForUntilTheEpochEnds) {
  StepRule rule;
  rule.OptimizerMade();
  rule.BatchFetched(kLoader);
  rule.Backward();
  EXPECT_FALSE(rule.IteratorEnd(kLoader + 1));
  EXPECT_TRUE(rule.IteratorEnd(kLoader));
  EXPECT_FALSE(rule.BatchFetched(kLoader));
  rule.Backward();
  EXPECT_TRUE(rule.BatchFetched(kLoader));
}

TEST(StepRule, IteratorOfAnotherLoaderEndsNothing) {
  StepRule rule;
  rule.BatchFetched(kLoader);
  rule.Backward();
  rule.OptimizerStep(1);
  EXPECT_FALSE(rule.IteratorEnd(kLoader + 1));
  EXPECT_TRUE(rule.IteratorEnd(kLoader));
}

TEST(StepRule, UserStepTakesOver) {
  StepRule rule;
  EXPECT_FALSE(rule.UserStep());
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(rule.BatchFetched(kLoader));
    rule.Backward();
    EXPECT_FALSE(rule.OptimizerStep(1));
  }
  EXPECT_FALSE(rule.IteratorEnd(kLoader));
  EXPECT_TRUE(rule.UserStep());
  EXPECT_TRUE(rule.UserStep());
  EXPECT_FALSE(rule.End());
  rule.OptimizerStep(1);
  EXPECT_TRUE(rule.End());
}

TEST(StepRules, LoopsOfThreadsDoNotDependOnOneAnother) {
  StepRules rules;
  const auto steps = [](StepRule& rule) { return rule.OptimizerStep(1); };
  const auto clears = [](StepRule& rule) { return rule.GradClear(); };
  EXPECT_FALSE(rules.Tell(1, steps));
  EXPECT_FALSE(rules.Tell(2, steps));
  EXPECT_TRUE(rules.Tell(1, clears));
  EXPECT_TRUE(rules.Tell(2, clears));
  EXPECT_FALSE(rules.Tell(1, steps));
  EXPECT_EQ(rules.EndAll(), 1u);
  EXPECT_EQ(rules.step(), 3u);
}

TEST(StepRules, OptimizerIsMadeForAllThreads) {
  StepRules rules;
  const auto backward = [](StepRule& rule) { return rule.Backward(), false; };
  const auto fetch = [](StepRule& rule) { return rule.BatchFetched(kLoader); };
  rules.Tell(1, backward);
  rules.OptimizerMade();
  rules.Tell(2, backward);
  EXPECT_FALSE(rules.Tell(1, fetch));
  EXPECT_FALSE(rules.Tell(2, fetch));
}

}  // namespace
}  // namespace traincheck
