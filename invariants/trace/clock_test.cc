#include "invariants/trace/clock.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

// Drives a clock with the events of a loop.
class ClockTest : public testing::Test {
 protected:
  void Forward(uint8_t flags = kRootModuleCall | kGradEnabled) {
    Event(forward_, 0, flags);
  }
  void Evaluate() { Forward(kRootModuleCall); }
  void Backward() { Event(backward_, 0, kGradEnabled | kOutermost); }
  void ZeroGrad() { Event(zero_grad_, 0, kGradEnabled | kOutermost); }
  void Step(uint32_t optimizer = 1) {
    Event(step_, optimizer, kGradEnabled | kOutermost);
  }
  void Mark(MarkKind kind, uint64_t value = 0, bool grad = true) {
    Call next;
    next.ring = ring_;
    next.flags = grad ? kGradEnabled : 0;
    clock_.OnMark({kind, 5, value, &next, ring_});
  }
  void Fetch(bool grad = true) { Mark(MarkKind::kBatchFetched, 0, grad); }

  Call Make(const FunctionInfo& function, uint32_t object, uint8_t flags) {
    Call call;
    call.ring = ring_;
    call.function = &function;
    call.object = object;
    call.flags = flags;
    return call;
  }
  void Event(const FunctionInfo& function, uint32_t object, uint8_t flags) {
    const Call call = Make(function, object, flags);
    clock_.OnCallBegin(call);
    clock_.OnCallEnd(call);
  }

  const FunctionInfo forward_{"f", "forward", {}};
  const FunctionInfo backward_{"b", "backward", {}};
  const FunctionInfo zero_grad_{"z", "zero_grad", {}};
  const FunctionInfo step_{"s", "optimizer_step", {}};
  const FunctionInfo init_{"i", "optimizer_init", {}};
  const FunctionInfo checkpoint_{"c", "checkpoint", {}};
  uint32_t ring_ = 1;
  Clock clock_;
};

TEST_F(ClockTest, PlainLoop) {
  for (uint64_t step = 0; step < 4; ++step) {
    Fetch();
    EXPECT_EQ(clock_.step(), step);
    ZeroGrad();
    Forward();
    Backward();
    Step();
    EXPECT_EQ(clock_.step(), step);
    EXPECT_EQ(clock_.OptimizerSteps(1), step + 1);
  }
}

TEST_F(ClockTest, LoopWithoutLoader) {
  for (uint64_t step = 0; step < 4; ++step) {
    ZeroGrad();
    Forward();
    EXPECT_EQ(clock_.step(), step);
    Backward();
    Step();
  }
  EXPECT_EQ(clock_.epoch(), std::nullopt);
}

TEST_F(ClockTest, EvaluationInsideTheLoopClosesNothing) {
  Fetch();
  Forward();
  Backward();
  Step();
  for (int i = 0; i < 3; ++i) {
    Fetch(/*grad=*/false);
    Evaluate();
  }
  Mark(MarkKind::kIteratorExhausted, 0, /*grad=*/false);
  EXPECT_EQ(clock_.step(), 0u);
  Fetch();
  EXPECT_EQ(clock_.step(), 1u);
}

TEST_F(ClockTest, AccumulationWithAShortLastGroup) {
  Event(init_, 1, kGradEnabled | kOutermost);
  for (int batch = 0; batch < 7; ++batch) {  // groups of 3, 3 and 1
    Fetch();
    EXPECT_EQ(clock_.step(), static_cast<uint64_t>(batch / 3));
    Forward();
    Backward();
    if (batch % 3 == 2 || batch == 6) Step();
  }
  Mark(MarkKind::kIteratorExhausted);
  EXPECT_EQ(clock_.step(), 3u);
}

TEST_F(ClockTest, TwoOptimizersKeepTheirOwnClocks) {
  for (int i = 0; i < 6; ++i) {
    Fetch();
    Forward();
    Backward();
    Step(1);
    if (i % 2 == 1) Step(2);
  }
  EXPECT_EQ(clock_.OptimizerSteps(1), 6u);
  EXPECT_EQ(clock_.OptimizerSteps(2), 3u);
}

TEST_F(ClockTest, ForwardsOfAClosureBelongToTheStep) {
  for (uint64_t step = 0; step < 3; ++step) {
    Fetch();
    const Call outer = Make(step_, 1, kGradEnabled | kOutermost);
    clock_.OnCallBegin(outer);
    ZeroGrad();
    Forward();
    Backward();
    Forward();
    clock_.OnCallEnd(outer);
    EXPECT_EQ(clock_.step(), step);
  }
}

TEST_F(ClockTest, RecomputationClosesNothing) {
  Forward();
  Backward();
  Step();
  Forward(kRootModuleCall | kGradEnabled | kInsideBackward);
  EXPECT_EQ(clock_.step(), 0u);
}

TEST_F(ClockTest, EpochIsTheIteratorOfTheTrainingLoader) {
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    Mark(MarkKind::kIteratorCreated);
    Fetch();
    Forward();
    Backward();
    Step();
    EXPECT_EQ(clock_.epoch(), epoch);
    Mark(MarkKind::kIteratorExhausted);
  }
}

TEST_F(ClockTest, PassWithoutGradientsIsNoEpoch) {
  Fetch();
  Backward();
  Step();
  Fetch(/*grad=*/false);
  EXPECT_EQ(clock_.epoch(), 0u);
}

TEST_F(ClockTest, ThreadsHaveALoopEach) {
  for (int i = 0; i < 3; ++i) {
    for (ring_ = 1; ring_ <= 2; ++ring_) ZeroGrad();
    for (ring_ = 1; ring_ <= 2; ++ring_) Step(ring_);
  }
  EXPECT_EQ(clock_.step(), 4u);
  clock_.OnMark({MarkKind::kCleanExit, 0, 0, nullptr, 1});
  EXPECT_EQ(clock_.step(), 6u);
}

TEST_F(ClockTest, SkippedStepClosesAndIsNoStep) {
  Step(5);
  Fetch();
  Mark(MarkKind::kStepSkipped);  // of object 5
  Fetch();
  EXPECT_EQ(clock_.step(), 2u);
  EXPECT_EQ(clock_.OptimizerSteps(5), 1u);
  EXPECT_EQ(clock_.SkippedSteps(5), 1u);
}

TEST_F(ClockTest, StepThatOtherRanksMakeIsCounted) {
  Step(5);
  Fetch();
  Mark(MarkKind::kStepSkipped, 1);  // the inputs of this rank have ended
  Fetch();
  EXPECT_EQ(clock_.step(), 2u);
  EXPECT_EQ(clock_.OptimizerSteps(5), 2u);
  EXPECT_EQ(clock_.SkippedSteps(5), 0u);
}

TEST_F(ClockTest, StepsOfTheUserTakeOver) {
  Mark(MarkKind::kUserStep);
  EXPECT_EQ(clock_.step(), 0u);  // nothing has happened yet
  for (uint64_t step = 0; step < 3; ++step) {
    for (int i = 0; i < 2; ++i) {
      Fetch();
      ZeroGrad();
      Forward();
      Backward();
      Step();
    }
    EXPECT_EQ(clock_.step(), step);
    Mark(MarkKind::kUserStep);
  }
  EXPECT_EQ(clock_.step(), 3u);
}

TEST_F(ClockTest, StageOfTheUserDecidesWhatCounts) {
  Forward();
  Backward();
  Step();
  Mark(MarkKind::kUserStage, static_cast<uint64_t>(UserStage::kEvaluation));
  Fetch();
  Forward();
  EXPECT_EQ(clock_.step(), 0u);
  Mark(MarkKind::kUserStage, static_cast<uint64_t>(UserStage::kTraining));
  Evaluate();
  EXPECT_EQ(clock_.step(), 1u);
  Step();
  Mark(MarkKind::kUserStage, 77);  // of a later version
  Evaluate();
  EXPECT_EQ(clock_.step(), 1u);
  Forward();
  EXPECT_EQ(clock_.step(), 2u);
}

TEST_F(ClockTest, CheckpointedForwardTrains) {
  Backward();
  Step();
  const Call region = Make(checkpoint_, 0, kGradEnabled | kOutermost);
  clock_.OnCallBegin(region);
  Evaluate();
  clock_.OnCallEnd(region);
  EXPECT_EQ(clock_.step(), 1u);
  Step();
  const Call ungraded = Make(checkpoint_, 0, kOutermost);
  clock_.OnCallBegin(ungraded);
  Evaluate();
  EXPECT_EQ(clock_.step(), 1u);
}

TEST_F(ClockTest, AfterAGapTheAgentsMarksTell) {
  for (int i = 0; i < 3; ++i) {
    ZeroGrad();
    Forward();
    Backward();
    Step();
  }
  clock_.OnGap();
  EXPECT_EQ(clock_.known_step(), std::nullopt);
  EXPECT_EQ(clock_.OptimizerSteps(1), std::nullopt);
  Mark(MarkKind::kStepClosed, 9);
  EXPECT_EQ(clock_.known_step(), 10u);
  EXPECT_EQ(clock_.OptimizerSteps(1), std::nullopt);
  Forward();
  Step();
  // What else would close the step is not asked.
  ZeroGrad();
  EXPECT_EQ(clock_.known_step(), 10u);
  Mark(MarkKind::kStepClosed, 10);
  EXPECT_EQ(clock_.known_step(), 11u);
  EXPECT_EQ(clock_.disagreements(), 0u);
}

TEST_F(ClockTest, AfterAGapTheAgentTellsTheOptimizersSteps) {
  Step(1);
  clock_.OnGap();
  const Call step = Make(step_, 1, kGradEnabled | kOutermost);
  clock_.OnCallBegin(step);
  EXPECT_EQ(clock_.OptimizerSteps(1), std::nullopt);
  clock_.OnMark({MarkKind::kOptimizerSteps, 1, 7, &step, 0});
  EXPECT_EQ(clock_.OptimizerSteps(1), 7u);
  clock_.OnCallEnd(step);
  EXPECT_EQ(clock_.OptimizerSteps(1), 8u);
  // Its begin is missing: so will its end be.
  clock_.OnMark({MarkKind::kOptimizerSteps, 2, 3, nullptr, 0});
  EXPECT_EQ(clock_.OptimizerSteps(2), 4u);
  // One that nobody saw may have stepped; one that is new has not.
  EXPECT_EQ(clock_.OptimizerSteps(3), std::nullopt);
  Event(init_, 3, kGradEnabled | kOutermost);
  EXPECT_EQ(clock_.OptimizerSteps(3), 0u);
}

TEST_F(ClockTest, AMarkBeforeItsEventClosesTheStep) {
  for (uint64_t step = 0; step < 3; ++step) {
    Forward();
    Backward();
    Step();
    Mark(MarkKind::kStepClosed, step);
    EXPECT_EQ(clock_.step(), step + 1);
    Fetch();
    EXPECT_EQ(clock_.step(), step + 1);
  }
  EXPECT_EQ(clock_.disagreements(), 0u);
  Forward();
  Mark(MarkKind::kStepClosed, 3);
  Backward();
  EXPECT_EQ(clock_.disagreements(), 1u);
}

TEST_F(ClockTest, MarksThatDisagreeAreCounted) {
  Step();
  ZeroGrad();
  Mark(MarkKind::kStepClosed, 0);
  EXPECT_EQ(clock_.disagreements(), 0u);
  Mark(MarkKind::kStepClosed, 5);
  EXPECT_EQ(clock_.disagreements(), 1u);
}

}  // namespace
}  // namespace traincheck
