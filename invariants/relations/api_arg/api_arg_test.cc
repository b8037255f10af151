#include "invariants/relations/api_arg/api_arg.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/capture_needs.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

// Must the texts be recorded that the function's argument x is given?
bool NeedsTexts(const nlohmann::json& values) {
  const nlohmann::json parameters = {{"is", "usage"},
                                     {"function", {{"name", "my.f"}}},
                                     {"values", {{"x", values}}}};
  const auto rule = ApiArg()->Parse(parameters, "");
  EXPECT_TRUE(rule.ok()) << rule.status();
  CaptureNeeds needs;
  if (rule.ok()) (*rule)->AddNeeds(&needs);
  return needs.Calls("my.f").texts.contains("x");
}

TEST(ArgUsage, NeedsTheTextsAmongItsValues) {
  EXPECT_TRUE(NeedsTexts({"mean"}));
  EXPECT_TRUE(NeedsTexts({nullptr, "mean"}));
  EXPECT_TRUE(NeedsTexts({0, "mean", "a tensor"}));
  EXPECT_FALSE(NeedsTexts({nullptr, 1}));
  EXPECT_FALSE(NeedsTexts({nullptr, "a tensor"}));
}

class CountingSink : public RuleSink {
 public:
  void OnVerdict(const Verdict& verdict) override {
    ++verdicts;
    violations += verdict.outcome == Outcome::kViolated;
  }
  int verdicts = 0;
  int violations = 0;
};

// A run whose processes are let go when they end.
class WorkersTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto rule = ApiArg()->Parse({{"is", "distinct"},
                                       {"across", "workers"},
                                       {"argument", "generator.numpy"}},
                                      "");
    ASSERT_TRUE(rule.ok()) << rule.status();
    evaluator_ =
        (*rule)->relation().NewEvaluator({{0, *rule, Precondition()}}, &sink_);
  }
  void Run(TraceBuilder* trace) {
    ProcessFacts facts(processes_++);
    const auto observer = evaluator_->AddProcess(facts);
    facts.AddObserver(observer.get());
    for (const StoredBatch& batch : trace->TakeBatches()) facts.Consume(batch);
    facts.End(ProcessEnd::kClean);
  }
  void RunOwner(uint32_t pid) {
    TraceBuilder trace;
    trace.Owner(pid);
    trace.Place(0, 1);
    Run(&trace);
  }
  // With workers that begin with equal states.
  void RunPass(uint32_t owner, uint64_t pass) {
    for (uint32_t worker = 0; worker < 8; ++worker) {
      TraceBuilder trace;
      trace.Worker(
          {.worker = worker, .owner = owner, .seed = pass, .step = 10 * pass});
      const uint32_t generator = trace.Variable(
          0, "generator", "numpy", {.kind = VariableKind::kGenerator});
      trace.State(StatePoint::kWorkerInit, generator, {.data = 3});
      Run(&trace);
    }
  }
  size_t State() {
    Archive archive;
    evaluator_->Fields(archive);
    return archive.TakeBytes().size();
  }

  CountingSink sink_;
  std::unique_ptr<RunObserver> evaluator_;
  uint32_t processes_ = 0;
};

TEST_F(WorkersTest, WhatIsKeptDoesNotGrowWithThePasses) {
  RunOwner(50);
  for (uint64_t pass = 0; pass < 20; ++pass) RunPass(50, pass);
  const size_t state = State();
  for (uint64_t pass = 20; pass < 60; ++pass) RunPass(50, pass);
  // Numbers of later steps are longer.
  EXPECT_LT(State(), state + 100);
  EXPECT_EQ(sink_.violations, 60 * 7);
}

TEST_F(WorkersTest, NorWhereTheOwnerIsNeverKnown) {
  for (uint64_t pass = 0; pass < 20; ++pass) RunPass(50, pass);
  const size_t state = State();
  for (uint64_t pass = 20; pass < 60; ++pass) RunPass(50, pass);
  EXPECT_LT(State(), state + 100);
  // What is dropped is judged before, without a rank.
  EXPECT_EQ(sink_.violations, 44 * 7);
  evaluator_->EndRun();
  EXPECT_EQ(sink_.violations, 60 * 7);
}

}  // namespace
}  // namespace traincheck
