#include "proto/step_rule.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(StepRule, PlainLoopWithLoaderClosesAtTheNextFetch) {
  StepRule rule;
  for (uint64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(rule.BatchFetched(), step > 0);
    EXPECT_EQ(rule.step(), step);
    EXPECT_FALSE(rule.GradClear());
    EXPECT_FALSE(rule.TrainingForward());
    rule.Backward();
    EXPECT_FALSE(rule.OptimizerStep(1));
  }
  EXPECT_TRUE(rule.End());
  EXPECT_FALSE(rule.End());
  EXPECT_EQ(rule.step(), 5u);
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
  uint64_t closed = 0;
  for (int batch = 0; batch < 11; ++batch) {  // groups of 4, 4 and 3
    closed += rule.BatchFetched();
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
  EXPECT_TRUE(rule.BatchFetched());
  rule.OptimizerStep(1);
  EXPECT_FALSE(rule.GradClear());  // 2 stepped before and has not yet
  rule.OptimizerStep(2);
  EXPECT_TRUE(rule.BatchFetched());
}

TEST(StepRule, ASecondStepOfOneOptimizerCloses) {
  StepRule rule;
  EXPECT_FALSE(rule.OptimizerStep(1));
  EXPECT_TRUE(rule.OptimizerStep(1));
  EXPECT_EQ(rule.step(), 1u);
  EXPECT_TRUE(rule.stepped());
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
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(rule.BatchFetched());
  EXPECT_FALSE(rule.End());
  EXPECT_EQ(rule.step(), 0u);
}

}  // namespace
}  // namespace traincheck
