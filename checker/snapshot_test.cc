// States that are damaged, and the format of those that are not.
#include "checker/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/hash.h"
#include "checker/checker.h"
#include "invariants/relations/registry.h"
#include "invariants/sets/invariant_for_testing.h"
#include "invariants/testing/synthetic_training.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

constexpr char kRun[] = "run";
constexpr char kExperiment[] = "experiment";

// One rule of every kind that keeps a state.
constexpr const char* kRules[][2] = {
    {"Consistent",
     R"({"across": "ranks", "of": "parameter.data", "point": "post_step"})"},
    {"Consistent",
     R"({"across": "variables", "of": "parameter.data", "point": "post_step",
         "a": "Net.backbone.weight", "b": "Net.head.weight"})"},
    {"APIArg",
     R"({"is": "constant", "function": {"name": "f"}, "argument": "p",
         "value": 0.5})"},
    {"APIArg",
     R"({"is": "distinct", "function": {"name": "f"}, "argument": "p",
         "within": {"name": "g"}})"},
    {"APIArg",
     R"({"is": "equal", "across": "ranks", "function": {"name": "f"},
         "argument": "p"})"},
    {"APIArg",
     R"({"is": "distinct", "across": "workers",
         "argument": "generator.numpy"})"},
    {"APISequence",
     R"({"window": "step", "functions": [{"category": "zero_grad"},
                                         {"category": "backward"}]})"},
    {"CallCount",
     R"({"function": {"category": "backward"}, "counts": [1],
         "per": "step"})"},
    {"CallReturns", R"({"seconds": 60, "medians": 5, "known_from": 20})"},
    {"CallReturns",
     R"({"seconds": 10, "medians": 5, "known_from": 20, "deadlock": true})"},
    {"CollectiveContract", R"({"what": "operation"})"},
    {"Consistent",
     R"({"across": "ranks", "of": "optimizer.lr", "point": "pre_step"})"},
    {"Consistent", R"({"across": "ranks", "of": "inputs", "is": "distinct"})"},
    {"Consistent",
     R"({"across": "ranks", "of": "parameter.data", "point": "post_step",
         "given": "equal gradients"})"},
    {"StateChange",
     R"({"of": "parameter.data", "role": "frozen", "changes": "never"})"},
    {"StateChange",
     R"({"of": "buffer.data", "role": "my.Norm.mean", "changes": "every",
         "steps": 1, "after": "first_forward"})"},
    {"EventContain",
     R"({"window": {"kind": "call", "function": {"category": "zero_grad"}},
         "event": {"kind": "state", "of": "parameter.grad", "is": "cleared",
                   "which": "every"}})"},
    {"EventContain",
     R"({"window": {"kind": "span",
                    "function": {"role": "torch.optim.optimizer.Optimizer.step"}},
         "event": {"kind": "state", "of": "parameter.data", "is": "kept",
                   "which": "every"}})"},
    {"APIOutput",
     R"json({"is": "equal", "function": {"name": "f"}, "output": "size(0)",
             "to": {"argument": "x"}})json"},
    {"APIArg",
     R"({"is": "fact", "function": {"category": "optimizer_step"},
         "fact": "step.backwards", "value": 1})"},
    {"EventContain",
     R"({"window": {"kind": "call",
                    "function": {"role": "torch.optim.optimizer.Optimizer.step"}},
         "event": {"kind": "state", "of": "parameter", "fact": "grad.finite",
                   "value": true, "which": "every"}})"},
    {"DeclaredTotal", R"({"function": {"name": "f"}, "argument": "p"})"},
    {"OptimizerProgress", R"({"backwards": 16})"},
    {"RateSchedule",
     R"({"optimizer": "A", "ordinal": 0, "steps": 9, "rates": [[[0, 0.5]]]})"},
    {"ReproducedSteps",
     R"({"start": {"host": "h", "rank": "0 of 2",
                   "generators": {"generator.torch": "0000000000000001"}},
         "steps": [["0000000000000001", "0000000000000002",
                    "0000000000000003", "0000000000000004"]]})"},
    {"SavedEqualsLive", R"({"what": "content"})"},
    {"SavedEqualsLive", R"({"what": "moment"})"},
    {"SavedEqualsLive", R"({"what": "still"})"},
    {"SavedEqualsLive", R"({"what": "resumed"})"},
    {"TrainCheck",
     R"json({"relation": "APIContainRelation", "params": [
               {"param_type": "APIParam", "api_full_name": "f"},
               {"param_type": "APIParam", "api_full_name": "g"}],
             "precondition": {"parent_func_call_pre": {
               "inverted": false,
               "preconditions": [{"clauses": "Unconditional"}]}}})json"},
    {"EventContain",
     R"({"window": {"kind": "call", "function": {"category": "backward"}},
         "event": {"kind": "state", "of": "parameter.grad", "is": "changed",
                   "which": "some"}})"},
    {"EventContain",
     R"({"window": {"kind": "span",
                    "function": {"role": "torch.optim.optimizer.Optimizer.step"}},
         "event": {"kind": "call", "function": {"category": "zero_grad"},
                   "binding": "held"}})"},
    {"EventContain",
     R"({"window": {"kind": "call",
                    "function": {"role": "torch.optim.optimizer.Optimizer.step"}},
         "event": {"kind": "state", "of": "parameter.data", "is": "changed",
                   "which": "some"}})"},
};

InvariantSet Rules() {
  InvariantSet set;
  set.name = "rules";
  for (const auto& [relation, parameters] : kRules) {
    set.invariants.push_back(
        NewInvariant(relation, nlohmann::json::parse(parameters)));
  }
  return set;
}

TrainingOptions Training() {
  TrainingOptions options;
  options.fault = TrainingFault::kBypassWrapper;
  options.fault_step = 1;
  return options;
}

void Feed(size_t from, size_t to, Checker* checker) {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const auto batches = TrainRank(Training(), static_cast<int32_t>(rank));
    for (size_t i = from; i < to; ++i) checker->Consume(rank, batches[i]);
  }
}

// Three batches of both ranks; then the second one ends, if it is to.
void FeedBegin(bool one_ends, Checker* checker) {
  Feed(0, 3, checker);
  if (one_ends) checker->EndProcess(1, ProcessEnd::kDied);
}

constexpr size_t kFingerprintAt = 8;
constexpr size_t kFingerprintBytes = 16;
constexpr size_t kStateAt = 40;

// As a mistake in a version number would make them: the envelope is whole.
void DamageStates(bool one_ends) {
  const InvariantSet set = Rules();
  Checker checker(kRun, kExperiment, set);
  FeedBegin(one_ends, &checker);
  const std::string sealed = checker.Save();
  const std::string fingerprint =
      sealed.substr(kFingerprintAt, kFingerprintBytes);
  std::mt19937_64 random(3);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string state = sealed.substr(kStateAt);
    for (uint64_t i = 1 + random() % 3; i > 0; --i) {
      state[random() % state.size()] = static_cast<char>(random());
    }
    if (round % 5 == 0) state.resize(random() % state.size());
    Checker other(kRun, kExperiment, set);
    if (!other.RestoreUntrusted(Seal(fingerprint, state)).ok()) {
      ++refused;
      continue;
    }
    Feed(3, 6, &other);
    other.EndProcess(0, ProcessEnd::kDied);
    other.EndRun();
    other.TakeChanges();
    other.Summary();
    other.StepOf(1);
    other.GroupRanksOf(1);
  }
  EXPECT_GT(refused, 400);
  EXPECT_LT(refused, 2000);
}

TEST(Snapshot, UntrustedStatesAreRefusedOrGoneOnWith) {
  DamageStates(/*one_ends=*/false);
}

TEST(Snapshot, UntrustedStatesWithAnEndedProcessAreToo) {
  DamageStates(/*one_ends=*/true);
}

TEST(Snapshot, DamageIsNoticed) {
  const InvariantSet set = Rules();
  Checker checker(kRun, kExperiment, set);
  Feed(0, 3, &checker);
  const std::string sealed = checker.Save();
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    std::string spoilt = sealed;
    spoilt[random() % spoilt.size()] ^= static_cast<char>(1 + random() % 255);
    EXPECT_FALSE(Checker(kRun, kExperiment, set).RestoreUntrusted(spoilt).ok());
  }
}

// A rank that gives a call, gets back and learns with another number in each
// step, or with one in all; a batch holds 100 steps.
std::vector<StoredBatch> TrainOnNumbers(int32_t rank, int steps, bool change) {
  TraceBuilder trace;
  trace.Process(ProcessKind::kMain, 0);
  trace.Place(rank, 2);
  const uint32_t call = trace.Function("f", "other", {});
  const uint32_t step = trace.Function("A.step", "optimizer_step", {});
  const uint32_t net = trace.Object("Net", {});
  const uint32_t ddp = trace.Object("Ddp", {.wrapped = net});
  const uint32_t optimizer =
      trace.Object("A", {.kind = ObjectKind::kOptimizer});
  const uint32_t weight = trace.Variable(net, "Net", "w", {});
  trace.Hold(optimizer, 0, {weight});
  trace.Replicas(1, ddp, {0, 1}, {weight});
  trace.ProcessGroup(1, {0, 1});
  for (int i = 0; i < steps; ++i) {
    const double number = 1e-3 * (1 + (change ? i : 0));
    trace.Begin(call, {.site = "t.py:4", .arguments = {{"p", number}}});
    trace.Return(number);
    trace.LearningRate(optimizer, 0, number);
    trace.Begin(step, {.object = optimizer, .site = "t.py:6"});
    trace.End();
    if (i % 100 == 99) trace.Cut();
  }
  return trace.TakeBatches();
}

size_t StateAfter(int steps, bool change) {
  InvariantSet set = Rules();
  std::erase_if(set.invariants, [](const Invariant& rule) {
    const std::string relation = rule.rule->relation_name();
    return relation != "CollectiveContract" &&
           rule.rule->parameters().value("across", "") != "ranks";
  });
  const Invariant returns = NewInvariant(
      "Consistent",
      {{"across", "ranks"}, {"of", "return"}, {"function", {{"name", "f"}}}});
  set.invariants.push_back(returns);
  Checker checker(kRun, kExperiment, set);
  const auto first = TrainOnNumbers(0, steps, change);
  const auto second = TrainOnNumbers(1, steps, change);
  for (size_t i = 0; i < first.size(); ++i) {
    checker.Consume(0, first[i]);
    checker.Consume(1, second[i]);
  }
  EXPECT_TRUE(checker.Violations().empty());
  const auto verdicts = checker.Verdicts();
  EXPECT_TRUE(std::any_of(verdicts.begin(), verdicts.end(), [&](const auto& v) {
    return v.invariant->id == returns.id && v.outcome == Outcome::kPass;
  }));
  return checker.Save().size();
}

// What has been judged is let go, whatever it was.
TEST(Snapshot, DoesNotGrowWithTheValuesThatWereSeen) {
  const size_t constant = StateAfter(4000, /*change=*/false);
  EXPECT_LT(StateAfter(4000, /*change=*/true), constant + 100);
  EXPECT_LT(constant, StateAfter(400, /*change=*/false) + 100);
}

TEST(Snapshot, EveryRelationIsAmongTheRules) {
  std::set<std::string> relations;
  for (const auto& [relation, parameters] : kRules) relations.insert(relation);
  for (const Relation* relation : Relations()) {
    EXPECT_EQ(relations.count(relation->name()), 1u) << relation->name();
  }
}

// Who changes what is saved raises kFormat in snapshot.cc, and then the hash
// here. A change of the synthetic training alone changes the hash only.
TEST(Snapshot, TheFormatIsThatOfItsNumber) {
  Checker checker(kRun, kExperiment, Rules());
  FeedBegin(/*one_ends=*/true, &checker);
  const std::string sealed = checker.Save();
  EXPECT_EQ(sealed[7], 33);
  EXPECT_EQ(HashText(sealed.substr(kStateAt)), "e3e18d0d99e743b7");
}

}  // namespace
}  // namespace traincheck
