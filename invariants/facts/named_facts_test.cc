// Each fact by its name, on records: what it is, and when it is unknown.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "invariants/facts/named_facts_for_testing.h"
#include "invariants/facts/variable_state.h"
#include "invariants/testing/deferred_states.h"
#include "proto/content_digest.h"

namespace traincheck {
namespace {

TEST_F(NamedFactsTest, EachIsInTheDocument) {
  std::ifstream in("docs/facts.md");
  std::stringstream text;
  text << in.rdbuf();
  for (const auto* table : {&CallFacts(), &OptimizerFacts(), &LoaderFacts(),
                            &VariableFacts(), &ObservedFacts()}) {
    for (const Fact& fact : *table) {
      const std::string row = "| `" + std::string(fact.name) + "` |";
      EXPECT_NE(text.str().find(row), std::string::npos) << row;
    }
  }
}

// A fact that is added gets a number of its own (LOOKS of sight.py): agents
// that do not know it would be taken for agents that have looked.
TEST_F(NamedFactsTest, AgentsOfAVersionLookAtSoManyFacts) {
  std::map<uint32_t, size_t> facts;
  for (const Fact& fact : ObservedFacts()) ++facts[fact.looked_at_since];
  EXPECT_EQ(facts,
            (std::map<uint32_t, size_t>{
                {1, 62u}, {2, 5u},   {3, 1u},  {4, 7u},   {5, 1u},  {6, 2u},
                {7, 6u},  {8, 7u},   {9, 22u}, {10, 12u}, {11, 6u}, {12, 3u},
                {13, 5u}, {14, 4u},  {15, 3u}, {16, 4u},  {17, 1u}, {18, 2u},
                {19, 1u}, {20, 40u}, {21, 1u}, {22, 3u},  {23, 4u}, {24, 1u},
                {25, 2u}, {26, 5u}}));
}

TEST_F(NamedFactsTest, InsideWrapper) {
  const uint32_t ddp = trace_.Object("DDP", {.wrapped = net_});
  const uint32_t wrapper = trace_.Function("DDP.forward", "forward", {});
  Reading inside("call.inside_wrapper", forward_);
  Reading of_wrapper("call.inside_wrapper", wrapper);
  facts_.AddObserver(&inside);
  facts_.AddObserver(&of_wrapper);
  const uint8_t root = kOutermost | kGradEnabled | kRootModuleCall;
  trace_.Begin(wrapper, {.object = ddp, .flags = root});
  CallOf(forward_, {.object = net_});
  trace_.End();
  CallOf(forward_, {.object = net_, .flags = root});
  EXPECT_EQ(Read(&inside), (Values{kYes, kNo}));
  EXPECT_EQ(of_wrapper.Take(), Values{});
  // What encloses a call whose begin is missing is not known.
  trace_.Lose();
  CallOf(forward_, {.object = net_});
  CallOf(forward_, {.object = net_, .flags = root});
  EXPECT_EQ(Read(&inside), (Values{kUnknown, kNo}));
}

TEST_F(NamedFactsTest, OnceGradientsAreReducedACallPastTheWrapperMeasures) {
  const uint32_t ddp = trace_.Object("DDP", {.wrapped = net_});
  const uint32_t wrapper = trace_.Function("DDP.forward", "forward", {});
  Reading inside("call.inside_wrapper", forward_);
  facts_.AddObserver(&inside);
  const uint8_t root = kOutermost | kGradEnabled | kRootModuleCall;
  trace_.Begin(wrapper, {.object = ddp, .flags = root});
  CallOf(forward_, {.object = net_});
  trace_.End();
  CallOf(backward_, {.flags = kOutermost});
  CallOf(forward_, {.object = net_, .flags = root});
  EXPECT_EQ(Read(&inside), Values{kYes});
  CallOf(step_, {.object = optimizer_, .flags = kOutermost});
  CallOf(forward_, {.object = net_, .flags = root});
  // Its backward reduces nothing.
  CallOf(backward_, {.flags = kOutermost});
  CallOf(forward_, {.object = net_, .flags = root});
  EXPECT_EQ(Read(&inside), (Values{kNo, kNo}));
}

TEST_F(NamedFactsTest, AutocastOfTheInnermostRegion) {
  Reading dtype("ctx.autocast_dtype", forward_);
  facts_.AddObserver(&dtype);
  CallOf(forward_);
  EXPECT_EQ(Read(&dtype), Values{});  // no region was ever entered
  trace_.EnterAutocast("torch.bfloat16");
  CallOf(forward_);
  trace_.EnterAutocast("");
  CallOf(forward_);
  trace_.LeaveAutocast();
  trace_.LeaveAutocast();
  CallOf(forward_);
  const FactValue none(std::string{});
  EXPECT_EQ(Read(&dtype),
            (Values{FactValue(std::string("torch.bfloat16")), none, none}));
  trace_.Lose();
  CallOf(forward_);
  EXPECT_EQ(Read(&dtype), Values{kUnknown});
}

TEST_F(NamedFactsTest, DropoutOnlyWhereItMayDrop) {
  const uint32_t drop = trace_.Function("drop", "operation", {"dropout"});
  Reading p("call.effective_dropout_p", drop);
  facts_.AddObserver(&p);
  const std::map<std::string, double> half = {{"p", 0.5}};
  CallOf(drop, {.arguments = half, .truths = {{"training", true}}});
  CallOf(drop, {.arguments = half, .truths = {{"training", false}}});
  CallOf(drop, {.arguments = half, .truths = {{"train", true}}});
  CallOf(drop, {.arguments = {{"p", 0.0}}, .truths = {{"training", true}}});
  CallOf(drop, {});
  EXPECT_EQ(Read(&p),
            (Values{FactValue(0.5), FactValue(0.0), FactValue(0.5), kUnknown}));
}

TEST_F(NamedFactsTest, DropoutInEvaluationMode) {
  const uint32_t drop = trace_.Function("drop", "operation", {"dropout"});
  Reading p("call.eval_dropout_p", drop);
  facts_.AddObserver(&p);
  const CallOptions half = {.arguments = {{"p", 0.5}},
                            .truths = {{"training", true}}};
  const uint8_t root = kOutermost | kRootModuleCall;
  CallOf(drop, half);  // by no module
  trace_.Begin(forward_, {.object = net_, .flags = root});
  CallOf(drop, half);
  // Of the innermost module, whatever encloses it (Monte Carlo dropout).
  trace_.Begin(forward_, {.flags = kModuleTraining});
  CallOf(drop, half);
  trace_.End();
  CallOf(drop, {.arguments = {{"dropout_p", 0.25}}});
  trace_.End();
  CallOf(drop, half);
  EXPECT_EQ(Read(&p), (Values{FactValue(0.5), FactValue(0.25)}));
  // The call of a module may be missing.
  trace_.Lose();
  CallOf(drop, half);
  trace_.Begin(forward_, {.object = net_, .flags = root | kModuleTraining});
  CallOf(drop, half);
  trace_.End();
  EXPECT_EQ(Read(&p), Values{kUnknown});
}

TEST_F(NamedFactsTest, TrainsInTheModeOfBefore) {
  trace_.Hold(optimizer_, 0, {w_});
  Reading as_before("opt.trains_as_before", step_);
  facts_.AddObserver(&as_before);
  const uint8_t evaluates = kOutermost | kGradEnabled | kRootModuleCall;
  const uint8_t trains = evaluates | kModuleTraining;
  const auto forward = [&](uint8_t flags) {
    CallOf(forward_, {.object = net_, .flags = flags});
  };
  const auto step = [&] {
    CallOf(backward_);
    CallOf(step_, {.object = optimizer_});
  };
  // Always in evaluation mode: so it was meant.
  forward(evaluates);
  step();
  forward(trains);
  step();
  EXPECT_EQ(Read(&as_before), Values{});
  // An evaluation with gradients is none of the training.
  forward(evaluates);
  forward(trains);
  step();
  EXPECT_EQ(Read(&as_before), Values{kYes});
  forward(evaluates);
  CallOf(step_, {.object = optimizer_});  // nothing was trained
  forward(evaluates);
  step();
  EXPECT_EQ(Read(&as_before), Values{kNo});
  trace_.Lose();
  forward(evaluates);
  step();
  EXPECT_EQ(Read(&as_before), Values{kUnknown});
}

TEST_F(NamedFactsTest, TheFirstCallOfAModelHasNoNumber) {
  trace_.Hold(optimizer_, 0, {w_});
  Reading as_before("opt.trains_as_before", step_);
  facts_.AddObserver(&as_before);
  const uint8_t evaluates = kOutermost | kGradEnabled | kRootModuleCall;
  const uint8_t trains = evaluates | kModuleTraining;
  const auto train = [&](uint32_t object, uint8_t flags) {
    CallOf(forward_, {.object = object, .flags = flags});
    CallOf(backward_);
    CallOf(step_, {.object = optimizer_});
  };
  train(0, trains);
  train(net_, evaluates);
  EXPECT_EQ(Read(&as_before), Values{kNo});
}

TEST_F(NamedFactsTest, AFirstCallInEvaluationModeSaysNothing) {
  trace_.Hold(optimizer_, 0, {w_});
  Reading as_before("opt.trains_as_before", step_);
  facts_.AddObserver(&as_before);
  const uint8_t evaluates = kOutermost | kGradEnabled | kRootModuleCall;
  const uint8_t trains = evaluates | kModuleTraining;
  CallOf(forward_, {.flags = evaluates});  // a frozen one
  for (uint8_t flags : {trains, evaluates}) {
    CallOf(forward_, {.flags = flags});
    CallOf(backward_);
    CallOf(step_, {.object = optimizer_});
  }
  CallOf(forward_, {.object = net_, .flags = evaluates});
  CallOf(backward_);
  CallOf(step_, {.object = optimizer_});
  EXPECT_EQ(Read(&as_before), Values{});
}

TEST_F(NamedFactsTest, TheModeOfAWrapperIsThatOfWhatItWraps) {
  const uint32_t wrapper = trace_.Object("DDP", {.wrapped = net_});
  trace_.Hold(optimizer_, 0, {w_});
  Reading as_before("opt.trains_as_before", step_);
  facts_.AddObserver(&as_before);
  const uint8_t outer = kOutermost | kGradEnabled | kRootModuleCall;
  const uint8_t inner = kOutermost | kGradEnabled;
  const auto train = [&](uint8_t mode_of_wrapper, uint8_t mode) {
    const auto flags = static_cast<uint8_t>(outer | mode_of_wrapper);
    trace_.Begin(forward_, {.object = wrapper, .flags = flags});
    const auto mode_of_inner = static_cast<uint8_t>(inner | mode);
    CallOf(forward_, {.object = net_, .flags = mode_of_inner});
    trace_.End();
    CallOf(backward_);
    CallOf(step_, {.object = optimizer_});
  };
  train(kModuleTraining, kModuleTraining);
  train(0, kModuleTraining);
  train(kModuleTraining, 0);
  EXPECT_EQ(Read(&as_before), (Values{kYes, kNo}));
}

TEST_F(NamedFactsTest, LossesWhoseTensorsMatch) {
  const uint32_t loss =
      trace_.Function("torch.nn.functional.mse_loss", "operation", {"loss"});
  const uint32_t other = trace_.Function("torch.nn.functional.cross_entropy",
                                         "operation", {"loss"});
  Reading match("call.shapes_match", loss);
  Reading of_classes("call.shapes_match", other);
  facts_.AddObserver(&match);
  facts_.AddObserver(&of_classes);
  const auto compare = [&](std::vector<uint64_t> input,
                           std::vector<uint64_t> target) {
    CallOf(loss, {.sizes = {{"input", input}, {"target", target}}});
  };
  compare({4, 1}, {4, 1});
  compare({4, 1}, {4});
  compare({4, 1}, {1, 1});  // one element is meant for all
  compare({4, 1}, {});
  compare({2, 4, 1}, {2, 1, 4});  // all pairs are meant
  EXPECT_EQ(Read(&match), (Values{kYes, kNo}));
  compare({4, 1}, {4, 3});
  EXPECT_EQ(Read(&match), Values{kNo});
  trace_.Lose();
  CallOf(loss, {.sizes = {{"input", {4}}}});
  CallOf(loss, {.sizes = {{"target", {4}}}});
  CallOf(loss, {.arguments = {{"input", 4}, {"target", 4}}});
  CallOf(loss, {});
  compare({4}, {4});
  EXPECT_EQ(Read(&match),
            (Values{kUnknown, kUnknown, kUnknown, kUnknown, kYes}));
  CallOf(other, {.sizes = {{"input", {4, 2}}, {"target", {4}}}});
  EXPECT_EQ(Read(&of_classes), Values{});
}

TEST_F(NamedFactsTest, ForwardsThatDraw) {
  Reading draws("call.rng_advanced", forward_);
  facts_.AddObserver(&draws);
  const uint32_t generator = trace_.Variable(
      0, "generator", "torch.cpu", {.kind = VariableKind::kGenerator});
  const uint8_t root = kOutermost | kRootModuleCall;
  const auto forward = [&](uint64_t before, uint64_t after) {
    trace_.Begin(forward_, {.object = net_, .flags = root});
    trace_.State(StatePoint::kForwardBegin, generator, {.data = before});
    if (after != 0) {
      trace_.State(StatePoint::kForwardEnd, generator, {.data = after});
    }
    trace_.End();
  };
  forward(1, 1);  // a module that never drew may have nothing to draw
  forward(1, 2);
  forward(2, 2);
  forward(2, 0);
  CallOf(forward_, {.object = net_, .flags = kOutermost});
  EXPECT_EQ(Read(&draws), (Values{kYes, kNo, kUnknown}));
}

TEST_F(NamedFactsTest, GradientsThatAreNotFinite) {
  trace_.Hold(optimizer_, 0, {w_});
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  EXPECT_EQ(OfVariable("grad.finite", w_), kUnknown);
  trace_.Statistics(StatePoint::kPreStep, w_, kHasGrad, 0);
  EXPECT_EQ(OfVariable("grad.finite", w_), kYes);
  trace_.Statistics(StatePoint::kPreStep, w_, kHasGrad, 3);
  EXPECT_EQ(OfVariable("grad.finite", w_), kNo);
  trace_.End();
  trace_.Begin(step_, {.object = optimizer_});
  EXPECT_EQ(OfVariable("grad.finite", w_), kUnknown);
}

TEST_F(NamedFactsTest, GradientsThatADeviceHasFoundNotFinite) {
  trace_.Hold(optimizer_, 0, {w_});
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
  trace_.Statistics(StatePoint::kPreStep, w_, kHasGrad, 3);
  std::mt19937_64 random(1);
  const auto deferred =
      DeferStates(trace_.TakeBatches(), {.max_lag = 0}, &random);
  for (const StoredBatch& batch : deferred) facts_.Consume(batch);
  EXPECT_EQ(OfVariable("grad.finite", w_), kNo);
}

TEST_F(NamedFactsTest, RowsThatChangeWithoutAGradient) {
  trace_.Hold(optimizer_, 0, {w_});
  const uint64_t zero = DigestOfZeros(8, Dtype::kFloat32);
  const auto step = [&](const std::vector<uint64_t>& gradients,
                        const std::vector<uint64_t>& after) {
    trace_.Begin(step_, {.object = optimizer_});
    trace_.State(StatePoint::kPreStep, w_, {.data = 1, .grad = 7});
    trace_.Rows(StatePoint::kPreStep, w_, kHasData, {11, 12, 13});
    trace_.Rows(StatePoint::kPreStep, w_, kHasGrad, gradients);
    trace_.State(StatePoint::kPostStep, w_, {.data = 2});
    trace_.Rows(StatePoint::kPostStep, w_, kHasData, after);
    trace_.End();
    return OfVariable("rows_changed_without_grad", w_);
  };
  EXPECT_EQ(step({5, zero, zero}, {21, 12, 13}), kNo);
  EXPECT_EQ(step({5, zero, zero}, {21, 22, 13}), kYes);
  EXPECT_EQ(step({}, {21, 12, 13}), kUnknown);
}

TEST_F(NamedFactsTest, LoadedContentIsThereAtTheNextStep) {
  trace_.Hold(optimizer_, 0, {w_});
  trace_.State(StatePoint::kLoad, w_, {.data = 5});
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 5, .grad = 7});
  EXPECT_EQ(OfVariable("loaded.consumed", w_), kYes);
  trace_.End();
  EXPECT_FALSE((OfVariable("var.kind", w_), facts_.Variable(w_)->loaded()));
  trace_.State(StatePoint::kLoad, w_, {.data = 5});
  trace_.Begin(step_, {.object = optimizer_});
  trace_.State(StatePoint::kPreStep, w_, {.data = 6, .grad = 7});
  EXPECT_EQ(OfVariable("loaded.consumed", w_), kNo);
}

TEST_F(NamedFactsTest, BuffersThatForwardsWrite) {
  const uint32_t mean = trace_.Variable(
      net_, "Net", "a.mean",
      {.kind = VariableKind::kBuffer, .owner_class = "BatchNorm"});
  const uint32_t other = trace_.Variable(
      net_, "Net", "b.mean",
      {.kind = VariableKind::kBuffer, .owner_class = "BatchNorm"});
  for (const uint32_t buffer : {mean, other}) {
    trace_.State(StatePoint::kConstruction, buffer, {.data = 1});
  }
  EXPECT_EQ(OfVariable("buffer.written_by_forward", other), kNo);
  EXPECT_EQ(OfVariable("buffer.updated_or_loaded", mean), kNo);
  for (const uint32_t buffer : {mean, other}) {
    trace_.State(StatePoint::kForwardBegin, buffer, {.data = 1});
  }
  trace_.State(StatePoint::kStepEnd, mean, {.data = 2});
  trace_.State(StatePoint::kStepEnd, other, {.data = 1});
  // Of the same name in a module of the same class.
  EXPECT_EQ(OfVariable("buffer.written_by_forward", other), kYes);
  EXPECT_EQ(OfVariable("buffer.updated_or_loaded", mean), kYes);
  EXPECT_EQ(OfVariable("buffer.updated_or_loaded", other), kNo);
  trace_.State(StatePoint::kLoad, other, {.data = 1});
  EXPECT_EQ(OfVariable("buffer.updated_or_loaded", other), kYes);
  EXPECT_EQ(OfVariable("buffer.updated_or_loaded", w_), kUnknown);
}

TEST_F(NamedFactsTest, WhatDefinitionsSay) {
  const uint32_t tied =
      trace_.Variable(net_, "Net", "tied", {.alias_group = 4});
  const uint32_t shard =
      trace_.Variable(net_, "Net", "shard", {.attribute = "placement.dp=S(0)"});
  const uint32_t replica =
      trace_.Variable(net_, "Net", "replica", {.attribute = "placement.dp=R"});
  const uint32_t again =
      trace_.Variable(net_, "Net", "again", {.alias_group = 4});
  const uint32_t alone =
      trace_.Variable(net_, "Net", "alone", {.alias_group = 5});
  EXPECT_EQ(OfVariable("var.alias_group", tied), kYes);
  EXPECT_EQ(OfVariable("var.alias_group", again), kYes);
  EXPECT_EQ(OfVariable("var.alias_group", alone), kNo);
  EXPECT_EQ(OfVariable("var.alias_group", w_), kNo);
  EXPECT_EQ(OfVariable("var.sharded", shard), kYes);
  EXPECT_EQ(OfVariable("var.sharded", replica), kNo);
  const uint32_t shared = trace_.Variable(net_, "Net", "shared",
                                          {.attribute = "shared_memory=True"});
  const uint32_t own =
      trace_.Variable(net_, "Net", "own", {.attribute = "shared_memory=False"});
  EXPECT_EQ(OfVariable("var.shared_memory", shared), kYes);
  EXPECT_EQ(OfVariable("var.shared_memory", own), kNo);
  EXPECT_EQ(OfVariable("var.shared_memory", w_), kUnknown);
  EXPECT_EQ(OfVariable("var.identity_epoch", w_), FactValue(0.0));
  EXPECT_EQ(OfVariable("var.identity_epoch", 999), kUnknown);
}

TEST_F(NamedFactsTest, StepsOfAnOptimizerAndRecomputedForwards) {
  Reading index("opt.step_index", step_);
  Reading again("call.is_recompute", forward_);
  Reading overrides("call.overrides", forward_);
  for (Reading* reading : {&index, &again, &overrides}) {
    facts_.AddObserver(reading);
  }
  CallOf(step_, {.object = optimizer_});
  CallOf(step_, {.object = optimizer_});
  CallOf(forward_, {.flags = kOutermost | kInsideBackward});
  CallOf(forward_, {});
  EXPECT_EQ(Read(&index), (Values{FactValue(0.0), FactValue(1.0)}));
  EXPECT_EQ(again.Take(), (Values{kYes, kNo}));
  EXPECT_EQ(overrides.Take(), (Values{kNo, kNo}));  // of no base class
  trace_.Lose();
  CallOf(step_, {.object = optimizer_});
  EXPECT_EQ(Read(&index), Values{kUnknown});
}

}  // namespace
}  // namespace traincheck
