// Facts of losses, clipping, rates, counters, frozen parts, wrapped models.
#include <gtest/gtest.h>

#include "invariants/facts/named_facts_for_testing.h"

namespace traincheck {
namespace {

constexpr uint8_t kRoot = kOutermost | kRootModuleCall | kGradEnabled;

class TrainingFactsTest : public NamedFactsTest {
 protected:
  TrainingFactsTest() { trace_.Hold(optimizer_, 0, {w_}); }

  void Backward(const std::map<const char*, double>& scalars) {
    trace_.Begin(backward_, {});
    for (const auto& [name, value] : scalars) {
      trace_.Scalar(StatePoint::kBackwardEnd, 0, 0, name, value);
    }
    trace_.End();
  }
  void Step() { CallOf(step_, {.object = optimizer_}); }
  void Clear() { CallOf(zero_grad_, {.object = optimizer_}); }
};

TEST_F(TrainingFactsTest, WhatALossShowed) {
  Reading twice("loss.normalised_twice", backward_);
  Reading broadcast("loss.broadcast", backward_);
  facts_.AddObserver(&twice);
  facts_.AddObserver(&broadcast);
  Backward({{"loss.normalised_twice", 1}});
  Backward({});  // not looked at
  Backward({{"loss.normalised_twice", 0}, {"loss.broadcast", 1}});
  EXPECT_EQ(Read(&twice), (Values{kYes, kNo}));
  EXPECT_EQ(broadcast.Take(), Values{kYes});
}

TEST_F(TrainingFactsTest, MeansOverEquallyManyTargets) {
  Reading alike("step.means_alike", step_);
  facts_.AddObserver(&alike);
  const auto step_of = [&](const std::vector<double>& targets) {
    for (double count : targets) Backward({{"loss.targets", count}});
    Step();
  };
  step_of({6});  // nothing is accumulated
  step_of({6, 6});
  step_of({6, 4});
  step_of({61, 58});  // rows of packed texts
  EXPECT_EQ(Read(&alike), (Values{kYes, kNo, kYes}));
  // Of one backward nothing is known.
  Backward({{"loss.targets", 6}});
  Backward({});
  Step();
  EXPECT_EQ(Read(&alike), Values{});
  // What was cleared is in no step.
  Backward({{"loss.targets", 6}});
  Clear();
  step_of({4});
  EXPECT_EQ(Read(&alike), Values{});
}

TEST_F(TrainingFactsTest, ClippedAndThenCleared) {
  const uint32_t clip = trace_.Function("clip", "clip_grad", {});
  Reading vain("grad.clipped_in_vain", zero_grad_);
  facts_.AddObserver(&vain);
  const auto late = [&] {
    CallOf(backward_);
    Step();
    CallOf(clip);
    Clear();
  };
  Clear();  // nothing was clipped
  late();
  EXPECT_EQ(Read(&vain), Values{kYes});
  // Missing records may have held a step.
  trace_.Lose();
  late();
  EXPECT_EQ(Read(&vain), Values{kUnknown});
  CallOf(clip);
  Step();
  late();
  EXPECT_EQ(Read(&vain), Values{kNo});
}

TEST_F(TrainingFactsTest, ABatchThatIsSkippedIsClippedInVainOnce) {
  const uint32_t clip = trace_.Function("clip", "clip_grad", {});
  Reading vain("grad.clipped_in_vain", zero_grad_);
  facts_.AddObserver(&vain);
  for (const bool skips : {false, true, true, false}) {
    CallOf(backward_);
    CallOf(clip);
    if (!skips) Step();
    Clear();
  }
  EXPECT_EQ(Read(&vain), (Values{kNo, kNo, kNo, kNo}));
}

TEST_F(TrainingFactsTest, GradientsOfEachSampleAreClippedAndTaken) {
  const uint32_t clip = trace_.Function("clip", "clip_grad", {});
  Reading vain("grad.clipped_in_vain", zero_grad_);
  facts_.AddObserver(&vain);
  for (int sample = 0; sample < 4; ++sample) {
    CallOf(backward_);
    CallOf(clip);
    Clear();
  }
  Step();
  EXPECT_EQ(Read(&vain), Values{});
}

TEST_F(TrainingFactsTest, ClippedBeforeTheFirstBackward) {
  const uint32_t clip = trace_.Function("clip", "clip_grad", {});
  Reading vain("grad.clipped_in_vain", zero_grad_);
  facts_.AddObserver(&vain);
  CallOf(clip);
  CallOf(backward_);
  Step();
  Clear();
  EXPECT_EQ(Read(&vain), Values{kYes});
}

TEST_F(TrainingFactsTest, AScalerThatSkipsUsedWhatWasClipped) {
  const uint32_t clip = trace_.Function("clip", "clip_grad", {});
  Reading vain("grad.clipped_in_vain", zero_grad_);
  facts_.AddObserver(&vain);
  for (int i = 0; i < 2; ++i) {
    CallOf(clip);
    trace_.Mark(MarkKind::kStepSkipped, optimizer_, 0);
    Clear();
  }
  EXPECT_EQ(Read(&vain), (Values{kNo, kNo}));
}

TEST_F(TrainingFactsTest, AClosureClipsForTheStepThatCalledIt) {
  const uint32_t clip = trace_.Function("clip", "clip_grad", {});
  Reading vain("grad.clipped_in_vain", zero_grad_);
  facts_.AddObserver(&vain);
  for (int i = 0; i < 3; ++i) {
    trace_.Begin(step_, {.object = optimizer_});
    Clear();
    CallOf(backward_);
    CallOf(clip);
    trace_.End();
  }
  Clear();
  EXPECT_EQ(Read(&vain), (Values{kNo, kNo, kNo}));
}

TEST_F(TrainingFactsTest, RatesThatHaveEnded) {
  Reading ended("opt.rates_ended", step_);
  facts_.AddObserver(&ended);
  const auto step_at = [&](double rate) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.LearningRate(optimizer_, 0, rate);
    trace_.End();
  };
  step_at(0);  // a warm-up
  step_at(0.1);
  EXPECT_EQ(Read(&ended), Values{});
  for (int i = 0; i < 9; ++i) step_at(0);
  Values expected(8, kNo);
  expected.push_back(kYes);
  EXPECT_EQ(Read(&ended), expected);
  step_at(0.1);
  step_at(0);
  EXPECT_EQ(Read(&ended), (Values{kYes, kNo}));
  trace_.Lose();
  for (int i = 0; i < 10; ++i) step_at(0);
  Values late(7, kUnknown);
  late.insert(late.end(), {kYes, kYes});
  EXPECT_EQ(Read(&ended), late);
}

TEST_F(TrainingFactsTest, CountersThatStop) {
  Reading counts("opt.counts_on", step_);
  facts_.AddObserver(&counts);
  Step();
  trace_.Scalar(StatePoint::kPreStep, optimizer_, 0, "counter_bits", 24);
  Step();
  trace_.Scalar(StatePoint::kPreStep, optimizer_, 0, "counter_bits", 8);
  Step();
  EXPECT_EQ(Read(&counts), (Values{kYes, kNo}));
}

TEST_F(TrainingFactsTest, GradientsAreClearedFromTheSecondStepOn) {
  Reading cleared("opt.grads_cleared_since", step_);
  facts_.AddObserver(&cleared);
  uint64_t gradient = 7;
  const auto backward = [&] {
    trace_.Begin(backward_, {});
    trace_.State(StatePoint::kBackwardEnd, w_, {.data = 1, .grad = ++gradient});
    trace_.End();
  };
  backward();
  Step();
  Clear();
  backward();
  Step();
  backward();
  Step();
  Step();  // without a backward
  EXPECT_EQ(Read(&cleared), (Values{kYes, kNo}));
  CallOf(backward_);  // of others: a master copy has its gradient by hand
  Step();
  EXPECT_EQ(Read(&cleared), Values{});
}

class FrozenPartTest : public TrainingFactsTest {
 protected:
  FrozenPartTest() { facts_.AddObserver(&as_before_); }

  // Of the net and of its part, in these modes.
  void Forward(uint8_t part_mode, uint8_t net_mode = kModuleTraining) {
    trace_.Begin(
        net_forward_,
        {.object = net_, .flags = static_cast<uint8_t>(kRoot | net_mode)});
    CallOf(forward_, {.object = part_,
                      .flags = static_cast<uint8_t>(kGradEnabled | part_mode)});
    trace_.End();
  }
  // What is recorded before a step of an optimizer that holds the weight.
  void Unfreeze(uint64_t data) {
    trace_.State(StatePoint::kPreStep, weight_, {.data = data});
  }

  const uint32_t part_ =
      trace_.Object("Backbone", {.root = net_, .path = "backbone"});
  const uint32_t weight_ =
      trace_.Variable(net_, "Net", "backbone.w", {.trainable = false});
  const uint32_t net_forward_ = trace_.Function("Other.forward", "forward", {});
  Reading as_before_{"call.frozen_as_before", forward_};
};

TEST_F(FrozenPartTest, KeepsItsMode) {
  // In an evaluation everything is in evaluation mode.
  Forward(0, 0);
  Step();
  Forward(kModuleTraining);
  Step();
  EXPECT_EQ(Read(&as_before_), Values{});
  Forward(0);
  Step();
  Forward(0);
  // It may have been unfrozen since the last step.
  Forward(kModuleTraining);
  EXPECT_EQ(Read(&as_before_), Values{kYes});
  Step();
  Forward(kModuleTraining);
  Forward(0, 0);
  EXPECT_EQ(Read(&as_before_), Values{kNo});
  // Once it trains, it may do so in any mode.
  Unfreeze(1);
  Forward(kModuleTraining);
  EXPECT_EQ(Read(&as_before_), Values{});
}

TEST_F(FrozenPartTest, MayBeUnfrozenAndTrainThen) {
  Forward(0);
  Step();
  Forward(0);
  Step();
  EXPECT_EQ(Read(&as_before_), Values{kYes});
  for (uint64_t step = 0; step < 3; ++step) {
    Forward(kModuleTraining);
    Unfreeze(step);
    Step();
  }
  EXPECT_EQ(Read(&as_before_), Values{});
}

TEST_F(TrainingFactsTest, ParametersThatTheWrapperDoesNotKnow) {
  const auto known = [&](uint32_t variable) {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    FactSubject subject;
    subject.facts = &facts_;
    subject.variable = variable;
    const Fact* fact = FindFact("var.known_to_wrapper");
    return fact->Applies(subject) ? fact->read(subject) : kUnknown;
  };
  EXPECT_EQ(known(w_), kUnknown);
  const uint32_t late = trace_.Variable(net_, "Net", "late", {});
  const uint32_t ddp = trace_.Object("DDP", {.wrapped = net_});
  trace_.Replicas(1, ddp, {0, 1}, {w_});
  EXPECT_EQ(known(w_), kYes);
  EXPECT_EQ(known(late), kNo);
}

TEST_F(TrainingFactsTest, FrozenParametersThatMove) {
  const auto step_with = [&](const StateOptions& before, uint64_t after) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.State(StatePoint::kPreStep, w_, before);
    trace_.State(StatePoint::kPostStep, w_,
                 {.data = after, .requires_grad = before.requires_grad});
    trace_.End();
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    FactSubject subject;
    subject.facts = &facts_;
    subject.variable = w_;
    const Fact* fact = FindFact("var.frozen_changed");
    return fact->Applies(subject) ? fact->read(subject) : kUnknown;
  };
  const StateOptions zero = {.data = 1, .grad = 0, .requires_grad = false};
  EXPECT_EQ(step_with(zero, 2), kYes);
  EXPECT_EQ(step_with(zero, 1), kNo);
  // Of a master copy the gradient is written by hand.
  EXPECT_EQ(step_with({.data = 1, .grad = 7, .requires_grad = false}, 2),
            kUnknown);
  EXPECT_EQ(step_with({.data = 1, .grad = 0}, 2), kUnknown);
}

TEST_F(TrainingFactsTest, SchedulesThatAreIdleOrFast) {
  Reading idle("schedule.idle", step_);
  Reading fast("schedule.fast", step_);
  facts_.AddObserver(&idle);
  facts_.AddObserver(&fast);
  const auto step_with = [&](const char* name, double value) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.Scalar(StatePoint::kPreStep, optimizer_, 0, name, value);
    trace_.End();
  };
  Step();
  step_with("schedule_idle", 2);
  step_with("schedule_idle", 3);
  EXPECT_EQ(Read(&idle), (Values{kNo, kYes}));
  for (int i = 0; i < 5; ++i) step_with("schedule_moved", 2);
  EXPECT_EQ((Read(&idle), fast.Take()), (Values{kNo, kNo, kYes, kYes}));
  trace_.Lose();
  for (int i = 0; i < 4; ++i) step_with("schedule_moved", 2);
  EXPECT_EQ((Read(&idle), fast.Take()), (Values{kUnknown, kUnknown, kYes}));
}

TEST_F(TrainingFactsTest, TiesThatWereLost) {
  Reading kept("opt.ties_kept", step_);
  facts_.AddObserver(&kept);
  Step();
  trace_.Scalar(StatePoint::kPreStep, optimizer_, 0, "ties_lost", 0);
  Step();
  trace_.Scalar(StatePoint::kPreStep, optimizer_, 0, "ties_lost", 1);
  Step();
  EXPECT_EQ(Read(&kept), (Values{kYes, kNo}));
}

TEST_F(TrainingFactsTest, ParametersThatAreOverwritten) {
  uint64_t content = 1;
  const auto step = [&](bool overwritten, uint64_t steps = 1) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.Mark(MarkKind::kOptimizerSteps, optimizer_, steps);
    content += overwritten;
    trace_.State(StatePoint::kPreStep, w_, {.data = content, .grad = 7});
    trace_.State(StatePoint::kPostStep, w_, {.data = ++content});
    trace_.End();
    return OfVariable("var.overwritten", w_);
  };
  EXPECT_EQ(step(false), kUnknown);
  EXPECT_EQ(step(false), kUnknown);
  EXPECT_EQ(step(false), kUnknown);
  EXPECT_EQ(step(false), kNo);
  // What is loaded is no accident.
  const uint32_t load = trace_.Function("load", "load_state_dict", {});
  CallOf(load);
  EXPECT_EQ(step(true), kUnknown);
  EXPECT_EQ(step(false), kNo);
  // Another optimizer is made of another tensor of that name.
  trace_.State(StatePoint::kConstruction, w_, {.data = 1000});
  content = 1000;
  EXPECT_EQ(step(false), kUnknown);
  EXPECT_EQ(step(false), kNo);
  // Weights are set back, and another optimizer is made of them.
  EXPECT_EQ(step(true, 0), kUnknown);
  EXPECT_EQ(step(false), kNo);
  EXPECT_EQ(step(true), kYes);
  EXPECT_EQ(step(true), kUnknown);  // a habit
}

TEST_F(TrainingFactsTest, MissingRecordsMayHaveHeldAnotherWriter) {
  const auto step = [&](uint64_t before) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.State(StatePoint::kPreStep, w_, {.data = before, .grad = 7});
    trace_.State(StatePoint::kPostStep, w_, {.data = 100});
    trace_.End();
    return OfVariable("var.overwritten", w_);
  };
  for (int i = 0; i < 4; ++i) step(100);
  trace_.Lose();
  for (int i = 0; i < 4; ++i) step(100);
  EXPECT_EQ(step(1), kUnknown);
}

TEST_F(TrainingFactsTest, WeightsThatAreClippedBetweenSteps) {
  for (uint64_t i = 0; i < 6; ++i) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.State(StatePoint::kPreStep, w_, {.data = 2 * i, .grad = 7});
    trace_.State(StatePoint::kPostStep, w_, {.data = 2 * i + 1});
    trace_.End();
    EXPECT_EQ(OfVariable("var.overwritten", w_), kUnknown);
  }
}

TEST_F(TrainingFactsTest, NormalisationsThatDecay) {
  const auto vector = [&](const char* name, const char* owner) {
    return trace_.Variable(net_, "Net", name,
                           {.shape = {4}, .owner_class = owner});
  };
  const uint32_t norm = vector("norm.weight", "my.RMSNorm");
  const uint32_t spared = vector("other.weight", "my.RMSNorm");
  const uint32_t bias = vector("bias", "torch.nn.modules.linear.Linear");
  const uint32_t other = trace_.Object("Weigher", {});
  trace_.Hold(optimizer_, 2,
              {trace_.Variable(other, "Weigher", "log_vars", {.shape = {3}})});
  trace_.Hold(optimizer_, 0, {w_, norm});
  trace_.Hold(optimizer_, 1, {bias, spared});
  const auto decays = [&](uint32_t variable, uint32_t group) {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    FactSubject subject;
    subject.facts = &facts_;
    subject.optimizer = optimizer_;
    subject.variable = variable;
    subject.group = group;
    const Fact* fact = FindFact("var.norm_decays");
    return fact->Applies(subject) ? fact->read(subject) : kUnknown;
  };
  EXPECT_EQ(decays(norm, 0), kUnknown);
  trace_.Scalar(StatePoint::kPreStep, optimizer_, 0, "weight_decay", 0.1);
  // Nothing is spared: so it was meant.
  EXPECT_EQ(decays(norm, 0), kUnknown);
  // Nor is what belongs to another model.
  trace_.Scalar(StatePoint::kPreStep, optimizer_, 2, "weight_decay", 0);
  EXPECT_EQ(decays(norm, 0), kUnknown);
  trace_.Scalar(StatePoint::kPreStep, optimizer_, 1, "weight_decay", 0);
  EXPECT_EQ(decays(norm, 0), kYes);
  EXPECT_EQ(decays(spared, 1), kNo);
  EXPECT_EQ(decays(w_, 0), kUnknown);
}

TEST_F(TrainingFactsTest, EvaluatedInTrainingMode) {
  trace_.Object(
      "torch.nn.modules.dropout.Dropout",
      {.bases = {"torch.nn.modules.dropout._DropoutNd"}, .root = net_});
  Reading evaluates("call.evaluates_training", forward_);
  facts_.AddObserver(&evaluates);
  const auto forward = [&](uint8_t flags) {
    CallOf(forward_, {.object = net_,
                      .flags = static_cast<uint8_t>(kOutermost |
                                                    kRootModuleCall | flags)});
  };
  forward(kModuleTraining);  // before it trains
  forward(kModuleTraining | kGradEnabled);
  Step();
  forward(kModuleTraining | kGradEnabled);
  EXPECT_EQ(Read(&evaluates), Values{});
  forward(0);
  forward(kModuleTraining);
  EXPECT_EQ(Read(&evaluates), (Values{kNo, kYes}));
}

// A generator makes samples for the step of the optimizer that judges them.
TEST_F(TrainingFactsTest, AskedInEachRoundOfAdversaries) {
  trace_.Object(
      "torch.nn.modules.dropout.Dropout",
      {.bases = {"torch.nn.modules.dropout._DropoutNd"}, .root = net_});
  const uint32_t judge = trace_.Object("Judge", {});
  const uint32_t judges =
      trace_.Object("Adam", {.kind = ObjectKind::kOptimizer});
  trace_.Hold(judges, 0,
              {trace_.Variable(judge, "Judge", "w", {.shape = {3, 2}})});
  Reading evaluates("call.evaluates_training", forward_);
  facts_.AddObserver(&evaluates);
  const auto forward = [&](uint8_t flags) {
    CallOf(forward_,
           {.object = net_,
            .flags = static_cast<uint8_t>(kOutermost | kRootModuleCall |
                                          kModuleTraining | flags)});
  };
  const auto round = [&](bool asked, bool judged) {
    if (asked) forward(0);
    if (judged) CallOf(step_, {.object = judges});
    forward(kGradEnabled);
    Step();
  };
  for (int i = 0; i < 4; ++i) round(/*asked=*/true, /*judged=*/true);
  EXPECT_EQ(Read(&evaluates), Values{});
  // It trains alone, and is asked now and then.
  round(/*asked=*/false, /*judged=*/false);
  round(/*asked=*/true, /*judged=*/false);
  EXPECT_EQ(Read(&evaluates), Values{kYes});
  // Adversaries that are evaluated after some rounds.
  round(/*asked=*/false, /*judged=*/true);
  round(/*asked=*/false, /*judged=*/true);
  forward(0);
  EXPECT_EQ(Read(&evaluates), Values{kYes});
}

}  // namespace
}  // namespace traincheck
