// Each fact by its name, on records: what it is, and when it is unknown.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "invariants/facts/fact.h"
#include "invariants/testing/trace_builder.h"
#include "proto/content_digest.h"

namespace traincheck {
namespace {

const FactValue kUnknown;
const FactValue kYes(true);
const FactValue kNo(false);

// Reads a fact at the begin and at the end of every call of one function.
class Reading : public ProcessObserver {
 public:
  Reading(const char* fact, uint32_t function)
      : fact_(FindFact(fact)), function_(function) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (!fact_->at_end) Read(facts, call);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (fact_->at_end) Read(facts, call);
  }
  // Since the last call; a call that the fact says nothing of has none.
  std::vector<FactValue> Take() { return std::move(values_); }

 private:
  void Read(const ProcessFacts& facts, const Call& call) {
    if (call.function_id != function_) return;
    FactSubject subject;
    subject.facts = &facts;
    subject.call = &call;
    if (IsOptimizerStep(call)) subject.optimizer = call.object;
    subject.loader = facts.loader_passes().LoaderOn(call.ring);
    if (fact_->Applies(subject)) values_.push_back(fact_->read(subject));
  }

  const Fact* const fact_;
  const uint32_t function_;
  std::vector<FactValue> values_;
};

using Values = std::vector<FactValue>;

class NamedFactsTest : public testing::Test {
 protected:
  // Values of the fact at calls of the function in what was written since.
  Values Read(Reading* reading) {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    return reading->Take();
  }
  FactValue OfVariable(const char* name, uint32_t variable) {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    FactSubject subject;
    subject.facts = &facts_;
    subject.optimizer = optimizer_;
    subject.variable = variable;
    return FindFact(name)->read(subject);
  }
  void CallOf(uint32_t function, const CallOptions& options = {}) {
    trace_.Begin(function, options);
    trace_.End();
  }

  TraceBuilder trace_;
  ProcessFacts facts_{0};
  const uint32_t net_ = trace_.Object("Net", {});
  const uint32_t optimizer_ =
      trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  const uint32_t w_ = trace_.Variable(net_, "Net", "w", {.shape = {3, 2}});
  const uint32_t forward_ = trace_.Function("Net.forward", "forward", {});
  const uint32_t backward_ = trace_.Function("backward", "backward", {});
  const uint32_t step_ = trace_.Function("SGD.step", "optimizer_step", {});
  const uint32_t zero_grad_ = trace_.Function("zero_grad", "zero_grad", {});
};

TEST_F(NamedFactsTest, EachIsInTheDocument) {
  std::ifstream in("docs/facts.md");
  std::stringstream text;
  text << in.rdbuf();
  for (const auto* table :
       {&CallFacts(), &OptimizerFacts(), &LoaderFacts(), &VariableFacts()}) {
    for (const Fact& fact : *table) {
      const std::string row = "| `" + std::string(fact.name) + "` |";
      EXPECT_NE(text.str().find(row), std::string::npos) << row;
    }
  }
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
  EXPECT_EQ(Read(&match), (Values{kYes, kNo}));
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

class GradScaledTest : public NamedFactsTest {
 protected:
  GradScaledTest() {
    trace_.Hold(optimizer_, 0, {w_});
    facts_.AddObserver(&scaled_);
  }
  // As GradScaler.scale does; a disabled one gives back what it got.
  void Scale(bool enabled) {
    trace_.Begin(scale_, {.storages = {{"outputs", 5}}});
    trace_.ReturnStorage(enabled ? 6 : 5);
  }
  void Unscale() { CallOf(unscale_, {.objects = {{"optimizer", optimizer_}}}); }
  void Step() { CallOf(step_, {.object = optimizer_}); }
  void Clear() { CallOf(zero_grad_, {.object = optimizer_}); }

  const std::string scaler_ = "torch.amp.grad_scaler.GradScaler.";
  const uint32_t scale_ = trace_.Function(scaler_ + "scale", "scaler", {});
  const uint32_t unscale_ = trace_.Function(scaler_ + "unscale_", "scaler", {});
  const uint32_t scaler_step_ = trace_.Function(scaler_ + "step", "scaler", {});
  Reading scaled_{"grad.scaled", step_};
};

TEST_F(GradScaledTest, FromTheBackwardToUnscaleOrClear) {
  Step();
  EXPECT_EQ(Read(&scaled_), Values{});  // no scaler is used
  Scale(true);
  CallOf(backward_);
  Step();
  Unscale();
  Step();
  Scale(true);
  CallOf(backward_);
  Clear();
  Step();
  EXPECT_EQ(Read(&scaled_), (Values{kYes, kNo, kNo}));
}

TEST_F(GradScaledTest, TheScalersOwnStepSeesToIt) {
  Scale(true);
  CallOf(backward_);
  trace_.Begin(scaler_step_, {});
  Step();
  trace_.End();
  EXPECT_EQ(Read(&scaled_), Values{kNo});
}

TEST_F(GradScaledTest, ADisabledScalerScalesNothing) {
  Scale(true);
  CallOf(backward_);
  Clear();
  Scale(false);
  CallOf(backward_);
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kNo});
}

TEST_F(GradScaledTest, UnknownWhereTheScalerWasNotSeen) {
  Scale(true);
  CallOf(backward_);
  Unscale();
  trace_.Lose();
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kUnknown});
  Clear();
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kNo});
  // In a step that was not sampled the scaler's calls are not recorded.
  trace_.Mark(MarkKind::kCaptureMode, 0,
              static_cast<uint64_t>(CaptureMode::kSkeleton));
  CallOf(backward_);
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kUnknown});
}

TEST_F(GradScaledTest, TheScaleAfterAnUpdate) {
  Reading scale("backward.scale", step_);
  facts_.AddObserver(&scale);
  Step();
  trace_.Scale(net_, 1024);
  Step();
  EXPECT_EQ(Read(&scale), (Values{kUnknown, FactValue(1024.0)}));
}

class LoaderFactsTest : public NamedFactsTest {
 protected:
  LoaderFactsTest() {
    for (Reading* reading : {&consumed_, &shuffles_, &trains_}) {
      facts_.AddObserver(reading);
    }
  }
  void Begin(uint64_t ordinal) {
    trace_.Begin(iter_, {});
    trace_.Mark(MarkKind::kIteratorCreated, loader_, ordinal);
    trace_.End();
  }
  // Batches whose indices have digests from `first` on.
  void Fetch(uint64_t batches, uint64_t first) {
    for (uint64_t i = 0; i < batches; ++i) {
      trace_.Begin(next_, {});
      trace_.State(StatePoint::kFetch, indices_, {.data = first + i});
      trace_.Mark(MarkKind::kBatchFetched, loader_, i);
      trace_.End();
      CallOf(backward_);
    }
  }
  void Exhaust(uint64_t ordinal) {
    trace_.Mark(MarkKind::kIteratorExhausted, loader_, ordinal);
  }

  const uint32_t loader_ =
      trace_.Object("DataLoader", {.kind = ObjectKind::kLoader});
  const uint32_t indices_ = trace_.Variable(
      loader_, "DataLoader", "indices", {.kind = VariableKind::kLoaderState});
  const uint32_t iter_ = trace_.Function("iter", "loader_iter", {});
  const uint32_t next_ = trace_.Function("next", "loader_next", {});
  Reading consumed_{"loader.consumed", iter_};
  Reading shuffles_{"sampler.shuffles", next_};
  Reading trains_{"loader.trains", iter_};
};

TEST_F(LoaderFactsTest, PassesAreCompared) {
  Begin(0);
  Fetch(6, 10);
  Exhaust(0);
  Begin(1);
  Fetch(6, 20);
  Begin(2);
  Fetch(6, 20);
  EXPECT_EQ(Read(&consumed_), (Values{kYes, kNo}));
  EXPECT_EQ(shuffles_.Take(), (Values{kYes, kNo}));
  EXPECT_EQ(trains_.Take(), (Values{kNo, kYes, kYes}));
  EXPECT_NE(facts_.loader_passes().PrefixDigest(loader_), std::nullopt);
}

TEST_F(LoaderFactsTest, WorkersDrawAheadWhileTheIteratorIsMade) {
  for (uint64_t pass = 0; pass < 2; ++pass) {
    trace_.Begin(iter_, {});
    for (uint64_t i = 0; i < 4; ++i) {
      trace_.State(StatePoint::kFetch, indices_, {.data = 30 + i});
    }
    trace_.Mark(MarkKind::kIteratorCreated, loader_, pass);
    trace_.End();
    Fetch(6, 34);
  }
  EXPECT_EQ(Read(&shuffles_), Values{kNo});
}

TEST_F(LoaderFactsTest, UnknownAfterMissingRecordsAndInShortPasses) {
  Begin(0);
  Fetch(3, 10);
  Exhaust(0);
  Begin(1);
  Fetch(4, 10);
  EXPECT_EQ(Read(&shuffles_), Values{kUnknown});
  trace_.Lose();
  Begin(2);
  Fetch(4, 10);
  EXPECT_EQ(Read(&consumed_), (Values{kYes, kUnknown}));
  EXPECT_EQ(shuffles_.Take(), Values{kUnknown});
  // Two passes that begin after it are known again.
  Exhaust(2);
  Begin(3);
  Fetch(4, 50);
  Begin(4);
  Fetch(4, 60);
  EXPECT_EQ(Read(&consumed_), (Values{kYes, kNo}));
  EXPECT_EQ(shuffles_.Take(), (Values{kUnknown, kYes}));
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
