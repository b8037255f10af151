// Verdicts on imported rules over runs recorded here.
#include <gtest/gtest.h>

#include "invariants/relations/registry.h"
#include "invariants/rules/run_reader.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

using nlohmann::json;

json Contain(const char* parent, const char* child) {
  return {{"relation", "APIContainRelation"},
          {"params",
           {{{"param_type", "APIParam"}, {"api_full_name", parent}},
            {{"param_type", "APIParam"}, {"api_full_name", child}}}},
          {"precondition",
           {{"parent_func_call_pre",
             {{"inverted", false},
              {"preconditions", {{{"clauses", "Unconditional"}}}}}}}}};
}

json Distinct(const char* function) {
  return {
      {"relation", "DistinctArgumentRelation"},
      {"params", {{{"param_type", "APIParam"}, {"api_full_name", function}}}},
      {"precondition",
       {{"distinct_arg",
         {{"inverted", false},
          {"preconditions", {{{"clauses", "Unconditional"}}}}}}}}};
}

class Verdicts : public RuleSink {
 public:
  std::vector<Verdict> all;
  void OnVerdict(const Verdict& verdict) override { all.push_back(verdict); }
};

// What became of these rules over one run of one process.
std::vector<Verdict> Judge(const std::vector<json>& parameters,
                           TraceBuilder* trace) {
  const Relation* relation = FindRelation("TrainCheck");
  std::vector<JudgedRule> rules;
  for (const json& one : parameters) {
    rules.push_back(
        {rules.size(), relation->Parse(one, "").value(), Precondition()});
  }
  Verdicts sink;
  const auto evaluator = relation->NewEvaluator(rules, &sink);
  RunReader reader({evaluator.get()});
  for (const StoredBatch& batch : trace->TakeBatches()) {
    reader.Consume(0, batch);
  }
  reader.EndProcess(0, ProcessEnd::kClean);
  reader.EndRun();
  return sink.all;
}

// In each call of `parent`, one of `child` if it is told so.
void Call(const char* parent, const char* child, TraceBuilder* trace) {
  trace->Begin(trace->Function(parent, "", {}), {});
  if (child != nullptr) {
    trace->Begin(trace->Function(child, "", {}), {});
    trace->End();
  }
  trace->End();
}

TEST(ImportedRules, AreJudgedUnderTheirOwnNumber) {
  TraceBuilder trace;
  Call("torch.p", "torch.c", &trace);
  Call("torch.q", nullptr, &trace);
  const std::vector<Verdict> verdicts =
      Judge({Distinct("torch.c"), Contain("torch.p", "torch.c"),
             Contain("torch.q", "torch._VariableFunctionsClass.c")},
            &trace);
  ASSERT_EQ(verdicts.size(), 3u);
  EXPECT_EQ(verdicts[0].rule, 1u);
  EXPECT_EQ(verdicts[0].outcome, Outcome::kPass);
  EXPECT_EQ(verdicts[1].rule, 2u);
  EXPECT_EQ(verdicts[1].outcome, Outcome::kViolated);
  EXPECT_EQ(verdicts[1].finding.seen, "torch.c was not called in it");
  EXPECT_EQ(verdicts[2].rule, 0u);
  EXPECT_EQ(verdicts[2].outcome, Outcome::kUnknown);
  EXPECT_EQ(verdicts[2].reason,
            "an imported DistinctArgumentRelation is not judged on runs of "
            "ours: no rule of ours means the same");
}

TEST(ImportedRules, AreNeverLearned) {
  const auto generator = FindRelation("TrainCheck")->NewGenerator();
  TraceBuilder trace;
  Call("torch.p", "torch.c", &trace);
  RunReader reader({generator.get()});
  for (const StoredBatch& batch : trace.TakeBatches()) {
    reader.Consume(0, batch);
  }
  reader.EndRun();
  EXPECT_TRUE(generator->Take().empty());
}

}  // namespace
}  // namespace traincheck
