// What gaps and steps go over, and that nothing else is left behind.
#include "invariants/facts/variable_states.h"

#include <gtest/gtest.h>

#include "invariants/facts/definitions_for_testing.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

class VariableStatesTest : public testing::Test {
 protected:
  VariableStatesTest() {
    trace_.Hold(optimizer_, 0, {held_});
    Define();
  }

  void Define() {
    DefineForTesting(&trace_, &definitions_, &ownership_,
                     [&](RecordType type, uint32_t id) {
                       variables_.OnDefinition(type, id);
                     });
  }
  void State(StatePoint point, uint32_t variable) {
    StateEvent event;
    event.variable_id = variable;
    event.variable = definitions_.Variable(variable);
    event.point = point;
    event.content = kHasData | kHasGrad;
    event.data = event.grad = ++digest_;
    variables_.OnState(event);
  }
  void Step() {
    Call call;
    call.function = definitions_.Function(step_);
    call.object = optimizer_;
    call.flags = kOutermost;
    variables_.OnCallBegin(call);
    variables_.AfterCall(call, CallOutcome::kReturned);
  }
  bool GotGrad(uint32_t variable) {
    return variables_.Find(variable)->got_grad();
  }

  TraceBuilder trace_;
  const uint32_t net_ = trace_.Object("Net", {});
  const uint32_t optimizer_ =
      trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  const uint32_t held_ = trace_.Variable(net_, "Net", "held", {});
  const uint32_t free_ = trace_.Variable(net_, "Net", "free", {});
  const uint32_t step_ = trace_.Function("SGD.step", "optimizer_step", {});
  uint64_t digest_ = 0;

  ProcessDefinitions definitions_;
  Ownership ownership_{&definitions_};
  RecordedSteps recorded_;
  Gaps gaps_;
  const FactInputs inputs_{definitions_, ownership_, recorded_, gaps_};
  VariableStates variables_{&inputs_};
};

// Once definitions are missing each record comes with a gap.
TEST_F(VariableStatesTest, AGapGoesOverWhatWasLearnedSinceTheLast) {
  State(StatePoint::kForwardBegin, held_);
  State(StatePoint::kForwardBegin, free_);
  State(StatePoint::kForwardBegin, free_);
  EXPECT_EQ(variables_.learned(), 2u);
  variables_.OnGap();
  EXPECT_EQ(variables_.learned(), 0u);
  EXPECT_EQ(variables_.Find(held_)->data(), std::nullopt);
  for (int i = 0; i < 3; ++i) {
    State(StatePoint::kForwardBegin, free_);
    EXPECT_NE(variables_.Find(free_)->data(), std::nullopt);
    EXPECT_EQ(variables_.learned(), 1u);
    variables_.OnGap();
    EXPECT_EQ(variables_.Find(free_)->data(), std::nullopt);
  }
  // A statistic alone is learned, too.
  StatisticsEvent event = {};
  event.variable_id = held_;
  event.of = kHasGrad;
  event.point = StatePoint::kPreStep;
  variables_.OnStatistics(event);
  EXPECT_EQ(variables_.learned(), 1u);
  variables_.OnGap();
  EXPECT_EQ(variables_.Find(held_)->grad_finite_at_step(), Tri::kUnknown);
}

TEST_F(VariableStatesTest, AGapGoesOverAllThatWasRestored) {
  State(StatePoint::kForwardBegin, held_);
  State(StatePoint::kForwardBegin, free_);
  variables_.OnGap();
  State(StatePoint::kForwardBegin, free_);
  Archive to;
  variables_.Fields(to);
  const std::string bytes = to.TakeBytes();
  VariableStates restored(&inputs_);
  Archive from(bytes);
  restored.Fields(from);
  EXPECT_EQ(restored.learned(), 2u);
  restored.OnGap();
  EXPECT_EQ(restored.Find(free_)->data(), std::nullopt);
}

TEST_F(VariableStatesTest, AStepGoesOverWhatGotAGradient) {
  Step();  // behind the definitions it goes over all, once
  State(StatePoint::kForwardBegin, held_);
  State(StatePoint::kForwardBegin, free_);
  EXPECT_EQ(variables_.open(), 0u);
  State(StatePoint::kBackwardEnd, free_);
  EXPECT_EQ(variables_.open(), 1u);
  EXPECT_TRUE(GotGrad(free_));
  Step();
  EXPECT_FALSE(GotGrad(free_));
  EXPECT_EQ(variables_.open(), 0u);
}

// Its own optimizer's step would have ended it.
TEST_F(VariableStatesTest, AStepEndsWhatIsNotHeldAnyMore) {
  const uint32_t other =
      trace_.Object("Other", {.kind = ObjectKind::kOptimizer});
  trace_.Hold(other, 0, {free_});
  Define();
  State(StatePoint::kBackwardEnd, free_);
  Step();
  EXPECT_TRUE(GotGrad(free_));
  trace_.Hold(other, 0, {});
  Define();
  Step();
  EXPECT_FALSE(GotGrad(free_));
}

}  // namespace
}  // namespace traincheck
