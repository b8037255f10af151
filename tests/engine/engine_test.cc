// Inference and checker together, on synthetic training runs: healthy variants
// stay quiet, and errors are found in their first wrong step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/seed_for_testing.h"
#include "invariants/sets/invariant_for_testing.h"
#include "tests/engine/engine_harness.h"

namespace traincheck {
namespace {

struct Variant {
  const char* name;
  void (*change)(TrainingOptions*);
};

class Healthy : public testing::TestWithParam<Variant> {};

TEST_P(Healthy, IsQuiet) {
  TrainingOptions options = Target();
  GetParam().change(&options);
  const Checked checked = Check(Learned(), "other", options);
  EXPECT_TRUE(checked.violations.empty()) << Print(checked);
  EXPECT_GE(checked.summary.decided, 5u) << Print(checked);
}

const Variant kHealthy[] = {
    {"Plain", [](TrainingOptions*) {}},
    {"Sgd", [](TrainingOptions* o) { o->optimizer = "torch.optim.sgd.SGD"; }},
    {"WarmUp", [](TrainingOptions* o) { o->warm_up = 2; }},
    {"Accumulation", [](TrainingOptions* o) { o->micro_batches = 3; }},
    {"Evaluation", [](TrainingOptions* o) { o->evaluate_every = 2; }},
    {"Unused", [](TrainingOptions* o) { o->unused_parameter = true; }},
    {"FrozenBackbone", [](TrainingOptions* o) { o->frozen_backbone = true; }},
    {"Alone",
     [](TrainingOptions* o) {
       o->ranks = 1;
       o->wrapped = false;
     }},
    {"UnwrappedRanks", [](TrainingOptions* o) { o->wrapped = false; }},
    {"ThreeRanks", [](TrainingOptions* o) { o->ranks = 3; }},
    {"NoLoader", [](TrainingOptions* o) { o->loader = false; }},
    {"Clip", [](TrainingOptions* o) { o->clip = true; }},
    {"Tied", [](TrainingOptions* o) { o->tied = true; }},
    {"OneBatchForAll", [](TrainingOptions* o) { o->steps_per_batch = 100; }},
    // Not every step is recorded in full.
    {"SampledEverySecond", [](TrainingOptions* o) { o->sample_every = 2; }},
    {"SampledWithoutLoader",
     [](TrainingOptions* o) {
       o->sample_every = 4;
       o->loader = false;
       o->steps = 20;
     }},
    {"SampledApart",
     [](TrainingOptions* o) {
       o->sample_every = 2;
       o->ranks_sample_alike = false;
       o->steps = 20;
     }},
    {"SampledUnused",
     [](TrainingOptions* o) {
       o->sample_every = 4;
       o->unused_parameter = true;
       o->micro_batches = 3;
       o->tied = true;
     }},
};

INSTANTIATE_TEST_SUITE_P(Variants, Healthy, testing::ValuesIn(kHealthy),
                         [](const auto& info) { return info.param.name; });

TEST(Faults, ForwardAroundTheWrapper) {
  TrainingOptions options = Target();
  options.fault = TrainingFault::kBypassWrapper;
  options.fault_step = 2;
  const Checked checked = Check(Learned(), "other", options);
  const Violation* drift = FindViolation(checked, kEqualAfterStep);
  ASSERT_NE(drift, nullptr) << Print(checked);
  EXPECT_EQ(drift->relation, "Consistent");
  EXPECT_EQ(drift->first_step, 2);
  EXPECT_EQ(drift->last_step, 5);
  EXPECT_EQ(drift->count, 4u);
  EXPECT_EQ(drift->ranks, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(drift->apis,
            (std::vector<std::string>{"torch.optim.adamw.AdamW.step"}));
  EXPECT_EQ(drift->sites, (std::vector<std::string>{"train.py:24"}));
  EXPECT_EQ(drift->variables[0], "Transformer.backbone.bias");
  EXPECT_THAT(
      drift->evidence,
      testing::Contains(
          "__main__.Transformer.forward was called: it bypasses its wrapper "
          "(DistributedDataParallel) (stage training) on ranks 0, 1; no "
          "reference run shows this"));
  const Violation* gradients = FindViolation(checked, kEqualGradients);
  ASSERT_NE(gradients, nullptr);
  EXPECT_EQ(gradients->first_step, 2);
  EXPECT_EQ(gradients->sites, (std::vector<std::string>{"train.py:22"}));
  // What is found on each rank at a step of this optimizer is about it, too.
  EXPECT_EQ(gradients->subjects, (std::vector<std::string>{"optimizer 0"}));
  const Violation* wrapper = FindViolation(checked, kWrapper);
  ASSERT_NE(wrapper, nullptr);
  EXPECT_EQ(wrapper->first_step, 2);
  EXPECT_EQ(wrapper->sites[0], "train.py:20");
  EXPECT_EQ(wrapper->subjects,
            (std::vector<std::string>{
                "__main__.Transformer.forward at train.py:20"}));
  EXPECT_FALSE(wrapper->open);
}

// What ranks broke each for itself stands beside their disagreement: with the
// words that are true of the rule.
struct Companion {
  const char* name;
  const char* relation;
  const char* parameters;
  nlohmann::json origin;
  nlohmann::json precondition;
  const char* evidence;
};

class Companions : public testing::TestWithParam<Companion> {};

TEST_P(Companions, SayWhatIsKnownOfTheRule) {
  InferenceResult rules = Learned();
  std::erase_if(rules.invariants, [](const Invariant& rule) {
    return rule.rule->relation_name() != std::string("Consistent");
  });
  Invariant rule = NewInvariant(GetParam().relation,
                                nlohmann::json::parse(GetParam().parameters),
                                GetParam().precondition);
  rule.origin = GetParam().origin;
  rules.invariants.push_back(rule);
  TrainingOptions options = Target();
  options.fault = TrainingFault::kBypassWrapper;
  options.fault_step = 2;
  const Checked checked = Check(rules, "other", options);
  const Violation* drift = FindViolation(checked, kEqualAfterStep);
  ASSERT_NE(drift, nullptr) << Print(checked);
  EXPECT_THAT(drift->evidence, testing::Contains(GetParam().evidence))
      << Print(checked);
}

const nlohmann::json kFromRuns = {{"format", "learned"}};
const nlohmann::json kAlways = {{"all", nlohmann::json::array()}};

const Companion kCompanions[] = {
    {"LearnedAlways", "EventContain",
     R"({"window": {"kind": "call", "function": {"category": "zero_grad"}},
         "event": {"kind": "call", "function": {"category": "backward"},
                   "binding": "any"}})",
     kFromRuns, kAlways,
     "backward was not called in it on ranks 0, 1; no reference run shows "
     "this"},
    {"LearnedNever", "EventContain",
     R"({"window": {"kind": "call",
                    "function": {"name": "__main__.Transformer.forward"}},
         "event": {"kind": "call", "happens": "never", "binding": "any",
                   "function": {"category": "forward"}}})",
     kFromRuns, kAlways,
     "a call of kind forward was called in it on ranks 0, 1; no reference run "
     "shows this"},
    {"LearnedCount", "CallCount",
     R"({"function": {"category": "backward"}, "counts": [2], "per": "step"})",
     kFromRuns, kAlways, "1 call on ranks 0, 1; no reference run shows this"},
    {"LearnedWithACondition", "EventContain",
     R"({"window": {"kind": "call", "function": {"category": "zero_grad"}},
         "event": {"kind": "call", "function": {"category": "backward"},
                   "binding": "any"}})",
     kFromRuns, nlohmann::json::parse(R"({"all": [
         {"clause": "constant", "fact": "ctx.grad_mode", "value": true}]})"),
     "backward was not called in it on ranks 0, 1; no reference run shows this "
     "where the rule applies"},
    {"LearnedByOneOfTwo",
     "CallCount",
     R"({"function": {"category": "backward"}, "counts": [2], "per": "step"})",
     {{"format", "merged"},
      {"of", nlohmann::json::array({{{"format", "traincheck"}}, kFromRuns})}},
     kAlways,
     "1 call on ranks 0, 1; no reference run shows this"},
    {"WrittenByHand", "CallCount",
     R"({"function": {"category": "backward"}, "counts": [2], "per": "step"})",
     nullptr, kAlways,
     "1 call on ranks 0, 1; the rule says: In each step, backward is called "
     "twice."},
    {"Imported",
     "CallCount",
     R"({"function": {"category": "backward"}, "counts": [2], "per": "step"})",
     {{"format", "traincheck"}},
     kAlways,
     "1 call on ranks 0, 1; the rule says: In each step, backward is called "
     "twice."},
    {"OfAnOriginThatSaysNothing",
     "CallCount",
     R"({"function": {"category": "backward"}, "counts": [2], "per": "step"})",
     {{"format", 3}},
     kAlways,
     "1 call on ranks 0, 1; the rule says: In each step, backward is called "
     "twice."},
};

INSTANTIATE_TEST_SUITE_P(Rules, Companions, testing::ValuesIn(kCompanions),
                         [](const auto& info) { return info.param.name; });

TEST(Faults, OptimizerThatHoldsFrozenParametersOnly) {
  TrainingOptions options = Target();
  options.fault = TrainingFault::kWrongParameters;
  const Checked checked = Check(Learned(), "other", options);
  const Violation* gradients = FindViolation(checked, kGradients);
  ASSERT_NE(gradients, nullptr) << Print(checked);
  EXPECT_EQ(gradients->first_step, 0);
  EXPECT_EQ(gradients->sites, (std::vector<std::string>{"train.py:24"}));
  EXPECT_EQ(gradients->variables,
            (std::vector<std::string>{"Transformer.backbone.bias",
                                      "Transformer.backbone.weight"}));
  EXPECT_EQ(gradients->evidence,
            (std::vector<std::string>{
                "got gradients and are held by no optimizer: "
                "Transformer.head.bias, Transformer.head.weight"}));
  // Without a gradient there is nothing to change by.
  EXPECT_EQ(FindViolation(checked, kUpdates), nullptr) << Print(checked);
}

TEST(Faults, GradientsThatAreNeverCleared) {
  TrainingOptions options = Target();
  options.fault = TrainingFault::kNoClear;
  const Checked checked = Check(Learned(), "other", options);
  const Violation* cleared = FindViolation(checked, kCleared);
  ASSERT_NE(cleared, nullptr) << Print(checked);
  // Before the first step there is nothing to clear.
  EXPECT_EQ(cleared->first_step, 1);
  EXPECT_EQ(cleared->subjects, (std::vector<std::string>{"optimizer 0"}));
  EXPECT_EQ(checked.violations.size(), 1u) << Print(checked);
}

TEST(Faults, AMajorityNamesTheOddRank) {
  TrainingOptions options = Target();
  options.ranks = 3;
  options.fault = TrainingFault::kNoSyncOnOneRank;
  options.fault_step = 1;
  const Checked checked = Check(Learned(), "other", options);
  const Violation* gradients = FindViolation(checked, kEqualGradients);
  ASSERT_NE(gradients, nullptr) << Print(checked);
  EXPECT_EQ(gradients->first_step, 1);
  EXPECT_EQ(gradients->ranks, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_NE(gradients->seen.find("rank 2 differs from ranks 0, 1"),
            std::string::npos)
      << gradients->seen;
}

TEST(Faults, ModelOptimizerAndStepDoNotMatter) {
  const uint64_t seed = SeedForTesting(20240607);
  SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const char* const optimizers[] = {
      "torch.optim.sgd.SGD", "torch.optim.adam.Adam",
      "torch.optim.rmsprop.RMSprop", "my.optimizers.Lion"};
  const uint64_t rounds = SeedsForTesting(20);
  for (uint64_t round = 0; round < rounds; ++round) {
    TrainingOptions options = Target();
    options.model = "Model" + std::to_string(random() % 1000);
    options.optimizer = optimizers[random() % 4];
    options.seed = random();
    options.steps = 8;
    options.loader = random() % 2 == 0;
    options.micro_batches = static_cast<int>(1 + random() % 3);
    options.fault = TrainingFault::kBypassWrapper;
    options.fault_step = static_cast<int>(random() % 7);
    Checked checked = Check(Learned(), "other", options);
    const Violation* drift = FindViolation(checked, kEqualAfterStep);
    ASSERT_NE(drift, nullptr) << Print(checked);
    EXPECT_EQ(drift->first_step, options.fault_step);
    options.fault = TrainingFault::kWrongParameters;
    checked = Check(Learned(), "other", options);
    ASSERT_NE(FindViolation(checked, kGradients), nullptr) << Print(checked);
    options.fault = TrainingFault::kNone;
    checked = Check(Learned(), "other", options);
    EXPECT_TRUE(checked.violations.empty()) << Print(checked);
  }
}

class Interleaving : public testing::TestWithParam<TrainingFault> {};

TEST_P(Interleaving, ChangesNothing) {
  TrainingOptions options = Target();
  options.ranks = 3;
  options.steps = 7;
  options.fault = GetParam();
  options.fault_step = 3;
  const std::string expected = Print(Check(Learned(), "other", options));
  const uint64_t seed = SeedForTesting(20240607);
  SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  Order order;
  for (uint32_t process = 0; process < 3; ++process) {
    order.insert(order.end(), 8, process);
  }
  const uint64_t rounds = SeedsForTesting(50);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    const Checked checked = Check(Learned(), "other", options, order);
    ASSERT_EQ(Print(checked), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Interleaving,
                         testing::Values(TrainingFault::kNone,
                                         TrainingFault::kBypassWrapper,
                                         TrainingFault::kWrongParameters,
                                         TrainingFault::kNoSyncOnOneRank));

TEST(Reporting, AViolationComesWithTheBatchThatShowsIt) {
  TrainingOptions options = Target();
  options.fault = TrainingFault::kBypassWrapper;
  options.fault_step = 2;
  InvariantSet set;
  set.invariants = Learned().invariants;
  Checker checker("run", "other", set);
  const auto first = TrainRank(options, 0);
  const auto second = TrainRank(options, 1);
  for (int step = 0; step < 3; ++step) {
    checker.Consume(0, first[static_cast<size_t>(step)]);
    const bool faulty = step == 2;
    std::set<std::string> relations;
    for (const Violation& violation : checker.TakeChanges()) {
      relations.insert(violation.relation);
    }
    EXPECT_EQ(relations.count("APIArg"), faulty);
    EXPECT_EQ(relations.count("Consistent"), 0u);
    checker.Consume(1, second[static_cast<size_t>(step)]);
    for (const Violation& violation : checker.TakeChanges()) {
      EXPECT_TRUE(violation.open);
      relations.insert(violation.relation);
    }
    EXPECT_EQ(relations.count("Consistent"), faulty);
  }
}

TEST(Reporting, RulesOfAnotherExperimentAreNotApplied) {
  uint32_t scoped = 0;
  for (const Invariant& invariant : Learned().invariants) {
    scoped += invariant.scope == Scope::kExperiment;
  }
  ASSERT_GT(scoped, 0u);
  const Checked other = Check(Learned(), "other", Target());
  EXPECT_EQ(other.summary.not_applied, scoped);
  EXPECT_EQ(other.summary.total + scoped, Learned().invariants.size());
  TrainingOptions cnn = TwoReferences()[0].options;
  const Checked same = Check(Learned(), "cnn", cnn);
  EXPECT_LT(same.summary.not_applied, scoped);
  EXPECT_TRUE(same.violations.empty()) << Print(same);
}

// A script may start several trainings, which are all rank 0 of 1.
TEST(Reporting, WhichOfSeveralTrainingsOfOneRankIsSaid) {
  TrainingOptions options = Target();
  options.ranks = 1;
  options.wrapped = false;
  const auto healthy = TrainRank(options, 0);
  options.fault = TrainingFault::kNoClear;
  const auto faulty = TrainRank(options, 0);
  InvariantSet set;
  set.invariants = Learned().invariants;
  for (bool beside : {false, true}) {
    Checker checker("run", "other", set);
    for (size_t i = 0; i < faulty.size(); ++i) {
      if (beside) checker.Consume(0, healthy[i]);
      checker.Consume(1, faulty[i]);
    }
    checker.EndRun();
    const std::vector<Violation> found = checker.Violations();
    ASSERT_FALSE(found.empty());
    for (const Violation& violation : found) {
      EXPECT_EQ(
          std::count_if(violation.evidence.begin(), violation.evidence.end(),
                        [](const std::string& line) {
                          return line.find("in pid 1 on host") == 0;
                        }),
          beside)
          << violation.text;
    }
  }
}

TEST(Reporting, AKilledRankLeavesItsWindowsUnknown) {
  InvariantSet set;
  set.invariants = Learned().invariants;
  Checker checker("run", "other", set);
  const auto first = TrainRank(Target(), 0);
  const auto second = TrainRank(Target(), 1);
  checker.Consume(1, second[0].number == 0 ? StoredBatch() : second[0]);
  checker.EndProcess(1, ProcessEnd::kDied);
  for (const StoredBatch& batch : first) checker.Consume(0, batch);
  checker.EndProcess(0, ProcessEnd::kClean);
  checker.EndRun();
  EXPECT_TRUE(checker.TakeChanges().empty());
  const CheckSummary summary = checker.Summary();
  ASSERT_EQ(summary.unknown.size(), 1u);
  EXPECT_EQ(summary.unknown.begin()->first, "rank 1 sent no records of it");
  EXPECT_EQ(summary.violated, 0u);
}

TEST(Reporting, IdsOfOneRunAreTheSameEachTime) {
  TrainingOptions options = Target();
  options.fault = TrainingFault::kWrongParameters;
  const Checked once = Check(Learned(), "other", options);
  const Checked again = Check(Learned(), "other", options);
  ASSERT_EQ(Print(once), Print(again));
  options.attempt = 1;
  const Checked later = Check(Learned(), "other", options);
  for (const auto& [id, violation] : later.violations) {
    EXPECT_EQ(once.violations.count(id), 0u);
    EXPECT_EQ(violation.attempt, 1u);
  }
}

}  // namespace
}  // namespace traincheck
