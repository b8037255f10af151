#include "invariants/facts/process_facts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "invariants/facts/fact.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/variable_state.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

class ProcessFactsTest : public testing::Test {
 protected:
  ProcessFactsTest() { trace_.Hold(optimizer_, 0, {w_, b_}); }

  void Read() {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
  }
  FactValue Value(const char* fact, uint32_t variable) {
    FactSubject subject;
    subject.facts = &facts_;
    subject.optimizer = optimizer_;
    subject.variable = variable;
    return FindFact(fact)->read(subject);
  }

  void Capture(CaptureMode mode) {
    trace_.Mark(MarkKind::kCaptureMode, 0, static_cast<uint64_t>(mode));
  }

  TraceBuilder trace_;
  ProcessFacts facts_{0};
  const uint32_t model_ = trace_.Object("Net", {});
  const uint32_t ddp_ = trace_.Object("DDP", {.wrapped = model_});
  const uint32_t optimizer_ =
      trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  const uint32_t w_ = trace_.Variable(model_, "Net", "w", {});
  const uint32_t b_ = trace_.Variable(model_, "Net", "b", {});
  const uint32_t free_ = trace_.Variable(model_, "Net", "free", {});
  const uint32_t step_ = trace_.Function("SGD.step", "optimizer_step", {});
  const uint32_t backward_ = trace_.Function("backward", "backward", {});
  const uint32_t zero_grad_ = trace_.Function("zero_grad", "zero_grad", {});
};

TEST_F(ProcessFactsTest, HeldAndReplicated) {
  trace_.Replicas(1, ddp_, {1, 0}, {w_});
  Read();
  EXPECT_EQ(Value("var.held_by", w_), FactValue(true));
  EXPECT_EQ(Value("var.held_by", free_), FactValue(false));
  EXPECT_EQ(Value("var.replica_group", w_), FactValue(true));
  EXPECT_EQ(Value("var.replica_group", b_), FactValue(false));
  EXPECT_EQ(facts_.ownership().GroupOf(w_)->ranks,
            (std::vector<int32_t>{0, 1}));
  const Optimizer* optimizer = facts_.ownership().Find(optimizer_);
  ASSERT_NE(optimizer, nullptr);
  EXPECT_EQ(optimizer->modules, (std::set<uint32_t>{model_, ddp_}));
  EXPECT_EQ(optimizer->wrappers, (std::set<uint32_t>{ddp_}));
}

TEST_F(ProcessFactsTest, StepChangesWhatItChanges) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.LearningRate(optimizer_, 0, 0.5);
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  trace_.State(StatePoint::kPreStep, b_, {.data = 2, .no_grad = true});
  trace_.State(StatePoint::kPostStep, w_, {.data = 3});
  trace_.State(StatePoint::kPostStep, b_, {.data = 2});
  trace_.End();
  Read();
  EXPECT_EQ(facts_.Variable(w_)->changed_in_step(), Tri::kYes);
  EXPECT_EQ(facts_.Variable(b_)->changed_in_step(), Tri::kNo);
  EXPECT_EQ(Value("grad.present", w_), FactValue(true));
  EXPECT_EQ(Value("grad.zero", w_), FactValue(false));
  EXPECT_EQ(Value("grad.present", b_), FactValue(false));
  EXPECT_EQ(Value("grad.zero", b_), FactValue(true));
  EXPECT_EQ(Value("var.effective_lr", w_), FactValue(0.5));
  EXPECT_EQ(Value("var.lr_nonzero", w_), FactValue(true));
  EXPECT_EQ(facts_.Variable(w_)->data_writer().function, step_);
}

TEST_F(ProcessFactsTest, TheGradientOfAStepMayComeFromItsClosure) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .no_grad = true});
  trace_.State(StatePoint::kPreStep, b_, {.data = 2, .grad = 6});
  trace_.Begin(backward_, {});
  trace_.State(StatePoint::kBackwardEnd, w_, {.grad = 7});
  trace_.State(StatePoint::kBackwardEnd, b_, {.grad = 0});
  trace_.End();
  trace_.State(StatePoint::kPostStep, w_, {.data = 3});
  trace_.State(StatePoint::kPostStep, b_, {.data = 2});
  trace_.End();
  // Of the next step.
  trace_.Begin(backward_, {});
  trace_.State(StatePoint::kBackwardEnd, b_, {.grad = 8});
  trace_.End();
  Read();
  EXPECT_EQ(Value("grad.present", w_), FactValue(true));
  EXPECT_EQ(Value("grad.zero", w_), FactValue(false));
  EXPECT_EQ(Value("grad.zero", b_), FactValue(true));
}

TEST_F(ProcessFactsTest, UnreadableTensorsAreUnknown) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.unreadable = true});
  trace_.State(StatePoint::kPostStep, w_, {.data = 3});
  trace_.End();
  Read();
  EXPECT_EQ(facts_.Variable(w_)->changed_in_step(), Tri::kUnknown);
  EXPECT_FALSE(IsKnown(Value("grad.zero", w_)));
}

TEST_F(ProcessFactsTest, AClosuresGradientCountsWhereTheHoldIsNotKnownYet) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, free_, {.data = 1, .no_grad = true});
  trace_.Begin(backward_, {});
  trace_.State(StatePoint::kBackwardEnd, free_, {.grad = 7});
  trace_.End();
  Read();
  EXPECT_EQ(Value("grad.zero", free_), FactValue(false));
  trace_.End();
}

TEST_F(ProcessFactsTest, AClosuresGradientCountsAlsoAfterWhatWasNotRead) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.unreadable = true});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .no_grad = true});
  trace_.Begin(backward_, {});
  trace_.State(StatePoint::kBackwardEnd, w_, {.grad = 7});
  trace_.End();
  trace_.End();
  Read();
  EXPECT_EQ(Value("grad.zero", w_), FactValue(false));
}

TEST_F(ProcessFactsTest, GradientsAreGotUntilTheNextStep) {
  trace_.Begin(backward_, {});
  trace_.State(StatePoint::kBackwardEnd, w_, {.grad = 5});
  trace_.State(StatePoint::kBackwardEnd, b_, {.grad = 0});
  trace_.State(StatePoint::kBackwardEnd, free_, {.grad = 5});
  trace_.End();
  Read();
  EXPECT_EQ(Value("var.got_grad", w_), FactValue(true));
  EXPECT_EQ(Value("var.got_grad", b_), FactValue(false));
  EXPECT_EQ(Value("var.got_grad", free_), FactValue(true));
  EXPECT_EQ(facts_.optimizer_books().BackwardsSince(optimizer_), 1u);
  trace_.Begin(step_, {.object = optimizer_});
  trace_.End();
  Read();
  EXPECT_EQ(Value("var.got_grad", w_), FactValue(false));
  EXPECT_EQ(Value("var.got_grad", free_), FactValue(false));
  EXPECT_EQ(facts_.optimizer_books().BackwardsSince(optimizer_), 0u);
}

TEST_F(ProcessFactsTest, ClearedByOptimizerModelOrWrapper) {
  for (uint32_t object : {optimizer_, model_, ddp_}) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.End();
    Read();
    EXPECT_EQ(facts_.optimizer_books().ClearedSince(optimizer_), Tri::kNo);
    trace_.Begin(zero_grad_, {.object = object});
    trace_.End();
    Read();
    EXPECT_EQ(facts_.optimizer_books().ClearedSince(optimizer_), Tri::kYes)
        << object;
  }
}

TEST_F(ProcessFactsTest, ClearedByHandWhereAGradientWas) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  trace_.State(StatePoint::kPreStep, b_, {.data = 1, .no_grad = true});
  trace_.End();
  // Never had one: says nothing.
  trace_.State(StatePoint::kGradClear, b_, {.no_grad = true});
  Read();
  EXPECT_EQ(facts_.optimizer_books().ClearedSince(optimizer_), Tri::kNo);
  trace_.State(StatePoint::kGradClear, w_, {.no_grad = true});
  Read();
  EXPECT_EQ(facts_.optimizer_books().ClearedSince(optimizer_), Tri::kYes);
}

TEST_F(ProcessFactsTest, WhatAStepDidThatWasNotSampledIsUnknown) {
  trace_.Begin(backward_, {});
  trace_.State(StatePoint::kBackwardEnd, w_, {.grad = 5});
  trace_.End();
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  trace_.State(StatePoint::kPostStep, w_, {.data = 2});
  trace_.End();
  Capture(CaptureMode::kSkeleton);
  trace_.Begin(backward_, {});
  trace_.End();
  Read();
  EXPECT_EQ(Value("var.got_grad", w_), FactValue());
  EXPECT_EQ(Value("opt.grads_cleared_since", w_), FactValue());
  trace_.Begin(step_, {.object = optimizer_});
  trace_.End();
  Read();
  EXPECT_EQ(facts_.Variable(w_)->changed_in_step(), Tri::kUnknown);
  EXPECT_EQ(Value("grad.present", w_), FactValue());
  EXPECT_EQ(Value("grad.zero", w_), FactValue());
  EXPECT_EQ(facts_.Variable(w_)->data(), std::nullopt);
  // Nothing is missing: clocks go on.
  EXPECT_EQ(facts_.gaps(), 0u);
  EXPECT_EQ(facts_.clock().OptimizerSteps(optimizer_), 2u);
  EXPECT_EQ(facts_.optimizer_books().BackwardsSince(optimizer_), 0u);
  // The next one is.
  Capture(CaptureMode::kAll);
  trace_.Begin(backward_, {});
  trace_.State(StatePoint::kBackwardEnd, b_, {.grad = 5});
  trace_.End();
  Read();
  EXPECT_EQ(Value("var.got_grad", w_), FactValue(false));
  EXPECT_EQ(Value("var.got_grad", b_), FactValue(true));
  EXPECT_EQ(Value("opt.grads_cleared_since", w_), FactValue(false));
}

TEST_F(ProcessFactsTest, AGradientThatIsGoneSaysNothingWhereNobodyKnewIt) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  trace_.End();
  Capture(CaptureMode::kSkeleton);
  trace_.Begin(step_, {.object = optimizer_});
  trace_.End();
  Capture(CaptureMode::kAll);
  trace_.State(StatePoint::kGradClear, w_, {.no_grad = true});
  Read();
  EXPECT_EQ(facts_.optimizer_books().ClearedSince(optimizer_), Tri::kUnknown);
}

TEST_F(ProcessFactsTest, WhetherAForgottenGradientChangedIsUnknown) {
  trace_.State(StatePoint::kBackwardEnd, w_, {.grad = 5});
  Read();
  EXPECT_EQ(facts_.Variable(w_)->grad_written(), Tri::kYes);
  Capture(CaptureMode::kSkeleton);
  Capture(CaptureMode::kAll);
  trace_.State(StatePoint::kBackwardEnd, w_, {.grad = 5});
  Read();
  EXPECT_EQ(facts_.Variable(w_)->grad_written(), Tri::kUnknown);
  trace_.State(StatePoint::kBackwardEnd, w_, {.grad = 6});
  trace_.State(StatePoint::kBackwardEnd, b_, {.unreadable = true});
  Read();
  EXPECT_EQ(facts_.Variable(w_)->grad_written(), Tri::kYes);
  EXPECT_EQ(facts_.Variable(b_)->grad_written(), Tri::kUnknown);
}

TEST_F(ProcessFactsTest, WindowsKnowWhetherTheirStepWasSampled) {
  const auto whole = [&](const RecordedSince& begin, uint64_t call) {
    return facts_.recorded().WholeSince(begin, 1, call);
  };
  const RecordedSince first = facts_.recorded().now();
  EXPECT_TRUE(whole(first, 9));
  Capture(CaptureMode::kSkeleton);
  Read();
  const RecordedSince second = facts_.recorded().now();
  EXPECT_FALSE(whole(first, 9));
  EXPECT_FALSE(whole(second, 9));
  // The call that closes the step is part of the next one.
  const uint64_t clear = trace_.Begin(zero_grad_, {.object = optimizer_});
  Capture(CaptureMode::kAll);
  trace_.End();
  Read();
  EXPECT_TRUE(whole(second, clear));
  EXPECT_FALSE(whole(second, clear + 1));
  EXPECT_FALSE(whole(first, clear));
  EXPECT_TRUE(whole(facts_.recorded().now(), 9));
  // A mode of a later version.
  trace_.Mark(MarkKind::kCaptureMode, 0, 77);
  Read();
  EXPECT_FALSE(facts_.recorded().whole());
}

TEST_F(ProcessFactsTest, WhatIsSwitchedOffIsMissing) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.LearningRate(optimizer_, 0, 0.5);
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  Capture(CaptureMode::kOff);
  Read();
  EXPECT_EQ(facts_.gaps(), 1u);
  EXPECT_NE(facts_.gap_reason().find("switched off by the plan"),
            std::string::npos);
  EXPECT_FALSE(facts_.clock().synced());
  EXPECT_EQ(Value("var.effective_lr", w_), FactValue());
  Capture(CaptureMode::kAll);
  Read();
  EXPECT_EQ(facts_.gaps(), 1u);
}

TEST_F(ProcessFactsTest, AfterAGapValuesAreUnknown) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  trace_.Lose();
  trace_.State(StatePoint::kPostStep, w_, {.data = 1});
  trace_.End();
  Read();
  EXPECT_EQ(facts_.gaps(), 1u);
  EXPECT_EQ(facts_.Variable(w_)->changed_in_step(), Tri::kUnknown);
}

TEST_F(ProcessFactsTest, ChangeSeenAtTheEndOfAStepHasNoWriter) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPostStep, w_, {.data = 1});
  trace_.End();
  trace_.Begin(zero_grad_, {.object = optimizer_});
  trace_.State(StatePoint::kStepEnd, w_, {.data = 1});
  Read();
  EXPECT_EQ(facts_.Variable(w_)->data_writer().function, step_);
  trace_.State(StatePoint::kStepEnd, w_, {.data = 2});
  trace_.End();
  Read();
  EXPECT_EQ(facts_.Variable(w_)->data_writer().function, 0u);
}

TEST_F(ProcessFactsTest, LearningRateIsAsLastRecorded) {
  trace_.Begin(step_, {.object = optimizer_});
  trace_.LearningRate(optimizer_, 0, 0.5);
  trace_.End();
  trace_.Begin(step_, {.object = optimizer_});
  Read();
  EXPECT_EQ(facts_.optimizer_books().LearningRate(optimizer_, 0), 0.5);
  EXPECT_EQ(facts_.optimizer_books().LearningRate(optimizer_, 1), std::nullopt);
  // Not a number: not known any more.
  trace_.LearningRate(optimizer_, 0, std::nan(""));
  Read();
  EXPECT_EQ(facts_.optimizer_books().LearningRate(optimizer_, 0), std::nullopt);
  trace_.LearningRate(optimizer_, 0, 0.25);
  trace_.End();
  Read();
  EXPECT_EQ(facts_.optimizer_books().LearningRate(optimizer_, 0), 0.25);
  // The change may be among what is missing.
  trace_.Lose();
  trace_.Begin(step_, {.object = optimizer_});
  trace_.End();
  Read();
  EXPECT_EQ(facts_.optimizer_books().LearningRate(optimizer_, 0), std::nullopt);
}

TEST_F(ProcessFactsTest, StageFollowsGradModeNotTheModulesFlag) {
  const uint32_t forward = trace_.Function("Net.forward", "forward", {});
  EXPECT_STREQ(facts_.stage(), "init");
  const uint8_t root = kOutermost | kRootModuleCall | kModuleTraining;
  trace_.Begin(forward, {.object = model_, .flags = root});
  Read();
  EXPECT_STREQ(facts_.stage(), "evaluation");
  trace_.End(kOutputSearched);
  trace_.Begin(forward, {.object = model_,
                         .flags = static_cast<uint8_t>(root | kGradEnabled)});
  Read();
  EXPECT_STREQ(facts_.stage(), "training");
  trace_.End(kOutputSearched | kOutputHasGradFn);
  trace_.Begin(backward_, {});
  trace_.Begin(forward,
               {.object = model_,
                .flags = static_cast<uint8_t>(root | kInsideBackward)});
  Read();
  EXPECT_STREQ(facts_.stage(), "recomputation");
  trace_.End();
  trace_.End();
  Read();
  EXPECT_STREQ(facts_.stage(), "training");
}

TEST(Facts, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const auto* table :
       {&CallFacts(), &OptimizerFacts(), &VariableFacts(), &ObservedFacts()}) {
    for (const Fact& fact : *table) {
      EXPECT_TRUE(names.insert(fact.name).second) << fact.name;
      EXPECT_EQ(FindFact(fact.name), &fact);
    }
  }
  EXPECT_EQ(FindFact("process.pid"), nullptr);
}

}  // namespace
}  // namespace traincheck
