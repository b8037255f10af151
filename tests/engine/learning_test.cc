// What is learned from two healthy programs, synthetic training runs, and what
// is not.
#include <gtest/gtest.h>

#include <algorithm>

#include "invariants/sets/set_json.h"
#include "invariants/testing/trace_builder.h"
#include "tests/engine/engine_harness.h"

namespace traincheck {
namespace {

const Invariant* FindRule(const InferenceResult& learned,
                          const std::string& text_part) {
  for (const Invariant& invariant : learned.invariants) {
    if (invariant.text.find(text_part) != std::string::npos) {
      return &invariant;
    }
  }
  return nullptr;
}

TEST(Learning, RoleLevelRulesAreGeneral) {
  for (const char* text : {kUpdates, kGradients, kWrapper, kEqualGradients,
                           kEqualAfterStep, kCleared}) {
    const Invariant* rule = FindRule(Learned(), text);
    ASSERT_NE(rule, nullptr) << text;
    EXPECT_EQ(rule->scope, Scope::kGeneral) << text;
    EXPECT_EQ(rule->experiments, (std::vector<std::string>{"cnn", "mlp"}));
  }
}

TEST(Learning, ThatABackwardRunsIsNoRuleForOtherPrograms) {
  const Invariant* rule = FindRule(Learned(), "a backward runs");
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->scope, Scope::kExperiment);
}

// Its definition may be among records that are missing.
TEST(Learning, CallsOfAFunctionThatIsNotDefinedTeachNothing) {
  TraceBuilder trace;
  trace.Place(0, 1);
  for (const uint64_t rows : {4, 3, 4}) {
    CallOptions told;
    told.sizes = {{"x", {rows}}};
    told.arguments = {{"p", static_cast<double>(rows % 2)}};
    trace.Begin(/*function=*/77, told);
    trace.Return("torch.float32", rows);
  }
  Inference inference((InferenceOptions()));
  inference.BeginRun({"run", "experiment", ""});
  for (const StoredBatch& batch : trace.TakeBatches()) {
    inference.Consume(0, batch);
  }
  inference.EndProcess(0, ProcessEnd::kClean);
  inference.EndRun();
  EXPECT_TRUE(inference.Finish(nullptr).invariants.empty());
}

// What is learned from steps of one backward each.
InferenceResult LearnedFromSteps(int steps) {
  TraceBuilder trace;
  trace.Place(0, 1);
  const uint32_t net = trace.Object("Net", {});
  const uint32_t adam = trace.Object("Adam", {.kind = ObjectKind::kOptimizer});
  const uint32_t weight = trace.Variable(net, "Net", "w", {});
  trace.Hold(adam, 0, {weight});
  const uint32_t backward = trace.Function("T.backward", "backward", {});
  const uint32_t step = trace.Function("A.step", "optimizer_step", {});
  for (int i = 0; i < steps; ++i) {
    trace.Begin(backward, {});
    trace.State(StatePoint::kBackwardEnd, weight,
                {.grad = static_cast<uint64_t>(i + 1)});
    trace.End();
    trace.Begin(step, {.object = adam});
    trace.End();
  }
  Inference inference((InferenceOptions()));
  inference.BeginRun({"run", "experiment", ""});
  for (const StoredBatch& batch : trace.TakeBatches()) {
    inference.Consume(0, batch);
  }
  inference.EndProcess(0, ProcessEnd::kClean);
  inference.EndRun();
  return inference.Finish(nullptr);
}

TEST(Learning, ABoundOfBackwardsNeedsSevenTimesAsMany) {
  constexpr char kBound[] = "at most 16 backwards";
  EXPECT_EQ(FindRule(LearnedFromSteps(110), kBound), nullptr);
  const InferenceResult learned = LearnedFromSteps(7 * 17 + 1);
  const Invariant* rule = FindRule(learned, kBound);
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->scope, Scope::kExperiment);
}

TEST(Learning, WhatOneProgramHappensToDoIsNotGeneral) {
  const Invariant* fetch = FindRule(Learned(), "a loader gives a batch");
  ASSERT_NE(fetch, nullptr);
  EXPECT_EQ(fetch->scope, Scope::kExperiment);
  EXPECT_EQ(fetch->experiments, (std::vector<std::string>{"cnn"}));
  for (const Invariant& invariant : Learned().invariants) {
    if (invariant.scope != Scope::kGeneral) continue;
    for (const char* accident : {"Cnn", "Mlp", "Conv2d", "Linear", "adam",
                                 "sgd", "loader", "__main__"}) {
      EXPECT_EQ(invariant.rule->parameters().dump().find(accident),
                std::string::npos)
          << invariant.text;
    }
  }
}

TEST(Learning, NarrowRulesUnderARoleRuleAreSuppressed) {
  size_t updates = 0;
  for (const Invariant& invariant : Learned().invariants) {
    updates += invariant.text.find(kUpdates) != std::string::npos;
  }
  EXPECT_EQ(updates, 1u);
  EXPECT_GT(Learned().dropped.at("implied: a role says it of all that have it"),
            0u);
}

TEST(Learning, DoesNotDependOnTheOrderOfRuns) {
  std::vector<Reference> references = TwoReferences();
  std::reverse(references.begin(), references.end());
  const InferenceResult other = Learn(references);
  ASSERT_EQ(other.invariants.size(), Learned().invariants.size());
  for (size_t i = 0; i < other.invariants.size(); ++i) {
    EXPECT_EQ(ToJson(other.invariants[i]), ToJson(Learned().invariants[i]));
  }
  EXPECT_EQ(other.dropped, Learned().dropped);
}

TEST(Learning, ARuleThatAReferenceBreaksIsDropped) {
  std::vector<Reference> references = TwoReferences();
  references[1].options.fault = TrainingFault::kBypassWrapper;
  const InferenceResult learned = Learn(references);
  EXPECT_EQ(FindRule(learned, kEqualAfterStep), nullptr);
  EXPECT_GT(learned.dropped.at("violated in a reference"), 0u);
  EXPECT_EQ(FindRule(learned, kWrapper), nullptr);
  // For the optimizer of the other one it held.
  const Invariant* wrapper =
      FindRule(learned, "DistributedDataParallel.forward");
  ASSERT_NE(wrapper, nullptr);
  EXPECT_EQ(wrapper->scope, Scope::kExperiment);
  EXPECT_EQ(wrapper->experiments, (std::vector<std::string>{"cnn"}));
  EXPECT_NE(FindRule(learned, kUpdates), nullptr);
}

TEST(Learning, ValuesThatNeverVaryMakeNoRule) {
  std::vector<Reference> references = TwoReferences();
  references.resize(1);
  references[0].options.warm_up = 100;  // lr 0 all the time
  const InferenceResult learned = Learn(references);
  EXPECT_EQ(FindRule(learned, kEqualAfterStep), nullptr);
  EXPECT_EQ(FindRule(learned, kUpdates), nullptr);
  EXPECT_GT(learned.dropped.at("seen too seldom to be trusted"), 0u);
}

TEST(Learning, OneRankWithoutWrapperLearnsItsRules) {
  std::vector<Reference> references = TwoReferences();
  references.resize(1);
  references[0].options.ranks = 1;
  references[0].options.wrapped = false;
  const InferenceResult learned = Learn(references);
  EXPECT_NE(FindRule(learned, kUpdates), nullptr);
  EXPECT_EQ(FindRule(learned, kWrapper), nullptr);
  EXPECT_EQ(FindRule(learned, kEqualAfterStep), nullptr);
}

TEST(Learning, UnusedParametersGiveEveryParameterACondition) {
  std::vector<Reference> references = TwoReferences();
  references.resize(1);
  references[0].options.unused_parameter = true;
  const InferenceResult learned = Learn(references);
  const Invariant* every = FindRule(learned, "every parameter");
  ASSERT_NE(every, nullptr);
  EXPECT_EQ(every->precondition.Clauses().size(), 1u) << every->text;
  EXPECT_EQ(every->scope, Scope::kExperiment);
}

TEST(Learning, TiedParametersOfOneRankAreEqual) {
  std::vector<Reference> references = TwoReferences();
  references.resize(1);
  references[0].options.tied = true;
  const InferenceResult learned = Learn(references);
  const Invariant* tied = FindRule(learned, "hold equal values");
  ASSERT_NE(tied, nullptr);
  EXPECT_EQ(tied->rule->parameters()["a"], "Cnn.head.weight");
  EXPECT_EQ(tied->rule->parameters()["b"], "Cnn.tied.weight");
  EXPECT_EQ(tied->scope, Scope::kExperiment);
}

TEST(Learning, DoesNotDependOnTheNumberOfThreads) {
  for (const uint32_t threads : {1u, 2u, 3u, 16u}) {
    InferenceOptions options;
    options.threads = threads;
    const InferenceResult other = Learn(TwoReferences(), options);
    ASSERT_EQ(other.invariants.size(), Learned().invariants.size()) << threads;
    for (size_t i = 0; i < other.invariants.size(); ++i) {
      EXPECT_EQ(ToJson(other.invariants[i]), ToJson(Learned().invariants[i]))
          << threads;
    }
    EXPECT_EQ(other.dropped, Learned().dropped) << threads;
  }
}

TEST(Learning, OnlyWhatTheOptionsWant) {
  InferenceOptions options;
  options.functions.exclude = {"torch.optim.*"};
  InferenceResult learned = Learn(TwoReferences(), options);
  EXPECT_FALSE(learned.invariants.empty());
  EXPECT_EQ(FindRule(learned, kUpdates), nullptr);
  EXPECT_NE(FindRule(learned, kEqualGradients), nullptr);
  EXPECT_GT(learned.dropped.at("left out by the options"), 0u);
  options.functions = {{"torch.optim.*"}, {}};
  learned = Learn(TwoReferences(), options);
  EXPECT_NE(FindRule(learned, kUpdates), nullptr);
  for (const Invariant& invariant : learned.invariants) {
    const std::string text = invariant.rule->parameters().dump();
    const bool names = text.find("\"name\"") != std::string::npos;
    EXPECT_TRUE(!names || text.find("torch.optim") != std::string::npos)
        << text;
  }
}

TEST(Learning, SaysWhereARuleComesFrom) {
  const Invariant* rule = FindRule(Learned(), kUpdates);
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->origin["format"], "learned");
  EXPECT_EQ(rule->origin["units"], 2);
  EXPECT_LT(rule->origin["chance"], 0.01);
  ASSERT_EQ(rule->origin["runs"].size(), 2u);
  EXPECT_EQ(rule->origin["runs"][1]["run"], "run-2");
  EXPECT_EQ(rule->origin["runs"][1]["step"], 0);
}

TEST(Learning, HowAProgramIsWrittenIsAdviceAndWhatAStepDoesIsNot) {
  const auto is_advice = [](const char* text) {
    const Invariant* rule = FindRule(Learned(), text);
    EXPECT_NE(rule, nullptr) << text;
    return rule && rule->origin.value("grade", "") == "advice";
  };
  for (const char* text : {kUpdates, kGradients, kWrapper, kEqualGradients,
                           kEqualAfterStep, kCleared, "a backward runs"}) {
    EXPECT_FALSE(is_advice(text)) << text;
  }
  EXPECT_TRUE(is_advice("a loader gives a batch"));
  for (const Invariant& invariant : Learned().invariants) {
    const std::string relation = invariant.rule->relation_name();
    if (relation != "CallCount" && relation != "APISequence") continue;
    EXPECT_EQ(invariant.origin.value("grade", ""), "advice") << invariant.text;
  }
}

// A rule on parameters that got a gradient is silent where none did; another
// one speaks.
TEST(Learning, WhereNoGradientFlowsSomeRuleSpeaks) {
  std::vector<Reference> references = TwoReferences();
  references.resize(1);
  references[0].options.unused_parameter = true;
  const InferenceResult learned = Learn(references);
  ASSERT_NE(FindRule(learned, "every parameter"), nullptr);
  TrainingOptions target = references[0].options;
  target.seed = 77;
  EXPECT_TRUE(Check(learned, "cnn", target).violations.empty());
  target.fault = TrainingFault::kNoGradient;
  const Checked checked = Check(learned, "cnn", target);
  const Violation* violation = FindViolation(checked, kGradients);
  ASSERT_NE(violation, nullptr) << Print(checked);
  EXPECT_EQ(violation->first_step, 0);
}

TEST(Learning, OnlyTheRelationsAskedFor) {
  InferenceOptions options;
  options.relations = {"Consistent"};
  Inference inference(options);
  inference.BeginRun({"run-1", "cnn", ""});
  for (int32_t rank = 0; rank < 2; ++rank) {
    for (const StoredBatch& batch : TrainRank(Target(), rank)) {
      inference.Consume(static_cast<uint32_t>(rank), batch);
    }
  }
  inference.EndRun();
  double last = 0;
  const InferenceResult learned = inference.Finish([&last](double fraction) {
    EXPECT_GE(fraction, last);
    last = fraction;
  });
  EXPECT_EQ(last, 1);
  EXPECT_FALSE(learned.invariants.empty());
  for (const Invariant& invariant : learned.invariants) {
    EXPECT_STREQ(invariant.rule->relation_name(), "Consistent");
  }
}

}  // namespace
}  // namespace traincheck
