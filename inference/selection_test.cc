#include "inference/selection.h"

#include <gtest/gtest.h>

#include "invariants/relations/registry.h"

namespace traincheck {
namespace {

using nlohmann::json;

constexpr char kStep[] = "torch.optim.optimizer.Optimizer.step";

json Span(const json& event) {
  return {{"window", {{"kind", "span"}, {"function", {{"role", kStep}}}}},
          {"event", event}};
}
json EveryParameter(const char* level, const char* step) {
  return {{"window", {{"kind", "call"}, {"function", {{level, step}}}}},
          {"event",
           {{"kind", "state"},
            {"of", "parameter.data"},
            {"is", "changed"},
            {"which", "every"}}}};
}
const json kGradientFlows = Span({{"kind", "state"},
                                  {"of", "parameter.grad"},
                                  {"is", "nonzero"},
                                  {"which", "some"}});

class SelectionTest : public testing::Test {
 protected:
  SelectionTest() {
    kinds_.Add("cnn", {"cnn"});
    kinds_.Add("mlp", {"mlp"});
    kinds_.Add("mlp-2", {"mlp"});
  }

  Candidate& Make(const json& parameters) {
    const Relation* relation = FindRelation("EventContain");
    Candidate& candidate = candidates_[KeyOf(*relation, parameters)];
    candidate.relation = relation;
    candidate.invariant.rule = relation->Parse(parameters, "").value();
    candidate.invariant.scope = Scope::kGeneral;
    return candidate;
  }

  static void Pass(Candidate* candidate, const std::string& program,
                   int windows) {
    RunScore score;
    for (int i = 0; i < windows; ++i) score.Add(Verdict());
    candidate->score.Add("run of " + program, program, score);
  }

  // A program in which the rule held in these stages and not in those.
  static void Show(Candidate* candidate, const std::string& program,
                   const std::vector<std::string>& holds,
                   const std::vector<std::string>& fails) {
    RunScore score;
    const size_t facts = candidate->invariant.rule->facts().size();
    const auto add = [&](bool held, const std::string& stage) {
      Verdict verdict;
      verdict.outcome = held ? Outcome::kPass : Outcome::kViolated;
      score.Add(verdict);
      Example example{held, std::vector<FactValue>(facts)};
      example.facts[0] = stage;
      score.examples.Add(example);
    };
    for (const std::string& stage : holds) add(true, stage);
    for (const std::string& stage : fails) add(false, stage);
    candidate->score.Add("run of " + program, program, score);
  }

  void SettleAll() {
    for (auto& [key, candidate] : candidates_) {
      Settle(options_, kinds_, &candidate);
    }
  }

  Candidate& CallRule() {
    return Make({{"window", {{"kind", "call"}, {"function", {{"name", "f"}}}}},
                 {"event",
                  {{"kind", "call"},
                   {"function", {{"name", "g"}}},
                   {"binding", "any"}}}});
  }

  InferenceOptions options_;
  ProgramKinds kinds_;
  Candidates candidates_;
};

TEST_F(SelectionTest, GeneralTakesProgramsOfDifferentKind) {
  Candidate& rule = Make(kGradientFlows);
  Pass(&rule, "mlp", 10);
  Pass(&rule, "mlp-2", 10);
  SettleAll();
  EXPECT_EQ(rule.dropped, "");
  EXPECT_EQ(rule.invariant.scope, Scope::kExperiment);
  rule.invariant.scope = Scope::kGeneral;
  Pass(&rule, "cnn", 10);
  SettleAll();
  EXPECT_EQ(rule.invariant.scope, Scope::kGeneral);
  options_.min_programs = 3;
  SettleAll();
  EXPECT_EQ(rule.invariant.scope, Scope::kExperiment);
}

TEST_F(SelectionTest, TooFewWindowsAgreeByChance) {
  Candidate& rule = Make(kGradientFlows);
  Pass(&rule, "cnn", 6);
  SettleAll();
  EXPECT_EQ(rule.dropped, "seen too seldom to be trusted");
  rule.dropped.clear();
  options_.max_chance = 0.1;
  SettleAll();
  EXPECT_EQ(rule.dropped, "");
}

TEST_F(SelectionTest, AConditionOfOneProgramIsItsAccident) {
  // Both programs break it in evaluation: each would pass by the other.
  Candidate& both = CallRule();
  for (const char* program : {"cnn", "mlp"}) {
    Show(&both, program, {"training", "training"}, {"evaluation"});
  }
  Weigh(&both);
  EXPECT_EQ(both.dropped, "");
  EXPECT_FALSE(both.invariant.precondition.empty());
  EXPECT_EQ(both.invariant.scope, Scope::kGeneral);
  // One alone does: without it, nobody would have known.
  candidates_.clear();
  Candidate& one = CallRule();
  Show(&one, "cnn", {"training", "training"}, {"evaluation"});
  Show(&one, "mlp", {"training"}, {});
  Weigh(&one);
  EXPECT_EQ(one.dropped, "");
  EXPECT_EQ(one.invariant.scope, Scope::kExperiment);
}

TEST_F(SelectionTest, NoConditionNoRule) {
  Candidate& rule = CallRule();
  Show(&rule, "cnn", {"training"}, {"training"});
  Weigh(&rule);
  EXPECT_EQ(rule.dropped, "violated in a reference");
}

TEST_F(SelectionTest, AConditionThatSilencesTheRuleNeedsAGuard) {
  Candidate& every = Make(EveryParameter("role", kStep));
  every.invariant.precondition = Precondition(
      {{ClauseKind::kConstant, FindFact("var.got_grad"), nullptr, true}});
  DropUnguarded(&candidates_);
  EXPECT_EQ(every.dropped, "no other rule checks its condition");
  every.dropped.clear();
  Make(kGradientFlows);
  DropUnguarded(&candidates_);
  EXPECT_EQ(every.dropped, "");
  // A fact that says nothing of gradients needs none.
  candidates_.erase(KeyOf(*every.relation, kGradientFlows));
  every.invariant.precondition =
      Precondition({{ClauseKind::kConstant, FindFact("var.role"), nullptr,
                     std::string("trainable")}});
  DropUnguarded(&candidates_);
  EXPECT_EQ(every.dropped, "");
}

TEST_F(SelectionTest, WhatARoleSaysOfAllIsNotSaidOfOne) {
  const json broad = EveryParameter("role", kStep);
  Candidate& role = Make(broad);
  Candidate& name = Make(EveryParameter("name", "torch.optim.adam.Adam.step"));
  name.implied = {{{{KeyOf(*role.relation, broad)}, "a role says it"}, 1}};
  name.runs = 1;
  role.invariant.scope = Scope::kExperiment;
  Suppress(&candidates_);
  EXPECT_EQ(name.dropped, "");
  role.invariant.scope = Scope::kGeneral;
  Suppress(&candidates_);
  EXPECT_EQ(name.dropped, "implied: a role says it");
  EXPECT_EQ(role.dropped, "");
}

TEST_F(SelectionTest, TheLimitKeepsTheBest) {
  Candidate& wide = Make(kGradientFlows);
  Candidate& narrow = CallRule();
  Pass(&wide, "cnn", 10);
  Pass(&wide, "mlp", 10);
  Pass(&narrow, "cnn", 50);
  KeepBest(2, &candidates_);
  EXPECT_EQ(narrow.dropped, "");
  KeepBest(1, &candidates_);
  EXPECT_EQ(narrow.dropped, "over the limit of invariants");
  EXPECT_EQ(wide.dropped, "");
}

TEST_F(SelectionTest, WhatTheLimitLeavesWithoutAGuardIsDropped) {
  Candidate& every = Make(EveryParameter("role", kStep));
  every.invariant.precondition = Precondition(
      {{ClauseKind::kConstant, FindFact("var.got_grad"), nullptr, true}});
  Candidate& guard = Make(kGradientFlows);
  Pass(&every, "cnn", 10);
  Pass(&every, "mlp", 10);
  Pass(&guard, "cnn", 10);
  KeepBest(1, &candidates_);
  EXPECT_EQ(guard.dropped, "over the limit of invariants");
  EXPECT_EQ(every.dropped, "no other rule checks its condition");
}

// It guards all the same, by the rules that imply it.
TEST_F(SelectionTest, AGuardThatIsImpliedStandsWithWhatImpliesIt) {
  Candidate& every = Make(EveryParameter("role", kStep));
  every.invariant.precondition = Precondition(
      {{ClauseKind::kConstant, FindFact("var.got_grad"), nullptr, true}});
  const auto implied_by = [&](const Candidate& broad) {
    const auto key = KeyOf(*broad.relation, broad.invariant.rule->parameters());
    return std::map<Implied, size_t>{{{{key}, "a role says it"}, 1}};
  };
  Candidate& broad = CallRule();
  Candidate& between = Make(EveryParameter("name", "a.step"));
  Candidate& guard = Make(kGradientFlows);
  Candidate& least = Make(EveryParameter("name", "b.step"));
  between.implied = implied_by(broad);
  guard.implied = implied_by(between);
  for (Candidate* one : {&between, &guard}) {
    one->runs = 1;
    one->dropped = "implied: a role says it";
  }
  for (const char* program : {"cnn", "mlp"}) {
    Pass(&every, program, 20);
    Pass(&broad, program, 10);
    Pass(&least, program, 5);
  }
  KeepBest(2, &candidates_);
  EXPECT_EQ(least.dropped, "over the limit of invariants");
  EXPECT_EQ(every.dropped, "");
  // Nothing reports any more what the guard would.
  KeepBest(1, &candidates_);
  EXPECT_EQ(broad.dropped, "over the limit of invariants");
  EXPECT_EQ(every.dropped, "no other rule checks its condition");
}

}  // namespace
}  // namespace traincheck
