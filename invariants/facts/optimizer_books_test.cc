#include "invariants/facts/optimizer_books.h"

#include <gtest/gtest.h>

#include "invariants/facts/definitions_for_testing.h"
#include "invariants/testing/trace_builder.h"
#include "proto/record_reader.h"

namespace traincheck {
namespace {

class OptimizerBooksTest : public testing::Test {
 protected:
  OptimizerBooksTest() {
    trace_.Hold(optimizer_, 0, {w_});
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      RecordReader records(batch.plain);
      while (records.Next()) {
        if (IsDefinition(records.header().type)) definitions_.Apply(records);
      }
    }
  }

  Call CallOf(uint32_t function, uint32_t object) const {
    Call call;
    call.function = definitions_.Function(function);
    call.object = object;
    call.flags = kOutermost;
    return call;
  }
  void Backward() { books_.OnCallBegin(CallOf(backward_, 0)); }
  void ZeroGrad(uint32_t object) {
    books_.OnCallBegin(CallOf(zero_grad_, object));
  }
  void EndStep(CallOutcome outcome = CallOutcome::kReturned) {
    books_.AfterCall(CallOf(step_, optimizer_), outcome);
  }
  void State(StatePoint point, StateContent content) {
    StateEvent event;
    event.variable_id = w_;
    event.variable = definitions_.Variable(w_);
    event.point = point;
    event.content = content;
    variables_.OnState(event);
    books_.OnState(event);
  }
  void Rate(uint32_t group, double value) {
    const std::string name = "lr";
    books_.OnScalar({optimizer_, StatePoint::kPreStep, group, &name, value});
  }
  void Gap() {
    gaps_.OnGap("a test");
    books_.OnGap();
  }

  TraceBuilder trace_;
  const uint32_t model_ = trace_.Object("Net", {});
  const uint32_t other_ = trace_.Object("Other", {});
  const uint32_t optimizer_ =
      trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  const uint32_t idle_ = trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  const uint32_t w_ = trace_.Variable(model_, "Net", "w", {});
  const uint32_t step_ = trace_.Function("SGD.step", "optimizer_step", {});
  const uint32_t backward_ = trace_.Function("backward", "backward", {});
  const uint32_t zero_grad_ = trace_.Function("zero_grad", "zero_grad", {});

  ProcessDefinitions definitions_;
  Ownership ownership_{&definitions_};
  RecordedSteps recorded_;
  Gaps gaps_;
  const FactInputs inputs_{definitions_, ownership_, recorded_, gaps_};
  VariableStates variables_{&inputs_};
  GradScaling scaling_{&inputs_};
  OptimizerBooks books_{&inputs_, &variables_, &scaling_};
};

TEST_F(OptimizerBooksTest, AStepWhoseEndIsRecordedEndsAGap) {
  Backward();
  EXPECT_EQ(books_.BackwardsSince(optimizer_), 1u);
  Gap();
  EndStep(CallOutcome::kUnknown);
  EXPECT_EQ(books_.BackwardsSince(optimizer_), std::nullopt);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kUnknown);
  EXPECT_TRUE(books_.MissedBackwardSince(optimizer_));
  EndStep(CallOutcome::kRaised);
  Backward();
  Backward();
  EXPECT_EQ(books_.BackwardsSince(optimizer_), 2u);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kNo);
  EXPECT_FALSE(books_.MissedBackwardSince(optimizer_));
}

TEST_F(OptimizerBooksTest, BackwardsOfStepsThatWereNotSampledAreMissed) {
  EndStep();
  recorded_.OnMark({MarkKind::kCaptureMode, 0,
                    static_cast<uint64_t>(CaptureMode::kSkeleton)});
  Backward();
  EXPECT_EQ(books_.BackwardsSince(optimizer_), 1u);
  EXPECT_TRUE(books_.MissedBackwardSince(optimizer_));
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kUnknown);
  // Its calls are recorded all the same.
  ZeroGrad(model_);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kYes);
}

TEST_F(OptimizerBooksTest, ZeroGradOfAnotherModelClearsNothing) {
  EndStep();
  ZeroGrad(other_);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kNo);
  ZeroGrad(model_);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kYes);
}

TEST_F(OptimizerBooksTest, GradientsClearedByHandAreNotScaled) {
  scaling_.OnGap();
  State(StatePoint::kPreStep, kHasGrad);
  EndStep();
  EXPECT_EQ(scaling_.Scaled(1, optimizer_), Tri::kUnknown);
  State(StatePoint::kGradClear, kGradIsNone);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kYes);
  EXPECT_EQ(scaling_.Scaled(1, optimizer_), Tri::kNo);
}

TEST_F(OptimizerBooksTest, GradientsThatAreWrittenOverByHand) {
  const auto cleared = [&](StateContent content) {
    State(StatePoint::kPreStep, kHasGrad);
    EndStep();
    State(StatePoint::kGradClear, content);
    return books_.ClearedSince(optimizer_);
  };
  EXPECT_EQ(cleared(kGradIsZero), Tri::kYes);
  EXPECT_EQ(cleared(kHasGrad), Tri::kNo);
  // It may be zero.
  EXPECT_EQ(cleared(kUnreadable), Tri::kUnknown);
}

TEST_F(OptimizerBooksTest, GradientsThatMayHaveBeenThereMayBeScaled) {
  scaling_.OnGap();
  EndStep();
  State(StatePoint::kGradClear, kGradIsZero);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kUnknown);
  EXPECT_EQ(scaling_.Scaled(1, optimizer_), Tri::kUnknown);
}

// Of two optimizers, the one that holds the variable.
TEST_F(OptimizerBooksTest, AGradientThatIsGoneClearsItsHolder) {
  books_.AfterCall(CallOf(step_, optimizer_), CallOutcome::kReturned);
  books_.AfterCall(CallOf(step_, idle_), CallOutcome::kReturned);
  State(StatePoint::kPreStep, kHasGrad);
  State(StatePoint::kGradClear, kUnreadable);
  EXPECT_EQ(books_.ClearedSince(optimizer_), Tri::kUnknown);
  EXPECT_EQ(books_.ClearedSince(idle_), Tri::kNo);
}

// What was found once is found anew when decays or holds change.
TEST_F(OptimizerBooksTest, VectorsThatAreSparedFromDecay) {
  const auto decay = [&](uint32_t group, double value) {
    const std::string name = "weight_decay";
    books_.OnScalar({optimizer_, StatePoint::kPreStep, group, &name, value});
  };
  EXPECT_FALSE(books_.SparesVectors(optimizer_, model_));
  decay(0, 0.1);
  decay(1, 0);
  EXPECT_FALSE(books_.SparesVectors(optimizer_, model_));
  trace_.Hold(optimizer_, 1,
              {trace_.Variable(model_, "Net", "bias", {.shape = {4}})});
  DefineForTesting(
      &trace_, &definitions_, &ownership_,
      [&](RecordType type, uint32_t id) { books_.OnDefinition(type, id); });
  EXPECT_TRUE(books_.SparesVectors(optimizer_, model_));
  EXPECT_FALSE(books_.SparesVectors(optimizer_, other_));
  decay(1, 0.1);
  EXPECT_FALSE(books_.SparesVectors(optimizer_, model_));
  decay(1, 0);
  EXPECT_TRUE(books_.SparesVectors(optimizer_, model_));
  Gap();
  EXPECT_FALSE(books_.SparesVectors(optimizer_, model_));
}

TEST_F(OptimizerBooksTest, WhatIsSavedIsRestored) {
  EndStep();
  Backward();
  ZeroGrad(optimizer_);
  Rate(1, 0.5);
  Archive saved;
  books_.Fields(saved);
  const std::string bytes = saved.TakeBytes();
  OptimizerBooks restored(&inputs_, &variables_, &scaling_);
  Archive reading(bytes);
  restored.Fields(reading);
  EXPECT_TRUE(reading.ok() && reading.at_end());
  EXPECT_EQ(restored.BackwardsSince(optimizer_), 1u);
  EXPECT_EQ(restored.ClearedSince(optimizer_), Tri::kYes);
  EXPECT_EQ(restored.LearningRate(optimizer_, 0), std::nullopt);
  EXPECT_EQ(restored.LearningRate(optimizer_, 1), 0.5);
}

}  // namespace
}  // namespace traincheck
