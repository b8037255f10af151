#include "invariants/sets/set_merge.h"

#include <gtest/gtest.h>

#include "invariants/sets/invariant_for_testing.h"

namespace traincheck {
namespace {

Invariant Rule(const std::string& id, Scope scope, const char* experiment) {
  Invariant rule;
  rule.id = id;
  rule.scope = scope;
  rule.experiments = {experiment};
  rule.support = 10;
  rule.origin = {{"format", "learned"}, {"runs", {experiment}}};
  return rule;
}

TEST(MergeSets, ARuleOfBothIsThereOnce) {
  InvariantSet a;
  a.runs = {"r2"};
  a.invariants = {Rule("1", Scope::kExperiment, "cnn"),
                  Rule("3", Scope::kGeneral, "cnn")};
  InvariantSet b;
  b.runs = {"r1", "r2"};
  b.invariants = {Rule("1", Scope::kGeneral, "mlp"),
                  Rule("2", Scope::kExperiment, "mlp")};
  const InvariantSet merged = MergeSets({a, b});
  EXPECT_EQ(merged.runs, (std::vector<std::string>{"r1", "r2"}));
  ASSERT_EQ(merged.invariants.size(), 3u);
  const Invariant& both = merged.invariants[0];
  EXPECT_EQ(both.scope, Scope::kGeneral);
  EXPECT_EQ(both.support, 20u);
  EXPECT_EQ(both.experiments, (std::vector<std::string>{"cnn", "mlp"}));
  EXPECT_EQ(both.origin["format"], "merged");
  EXPECT_EQ(both.origin["of"].size(), 2u);
  EXPECT_EQ(merged.invariants[1].id, "2");
  EXPECT_EQ(merged.invariants[1].origin["format"], "learned");
}

TEST(MergeSets, OriginsOfManyStandSideBySide) {
  std::vector<InvariantSet> sets(3);
  for (int i = 0; i < 3; ++i) {
    sets[i].invariants = {
        Rule("1", Scope::kGeneral, ("e" + std::to_string(i)).c_str())};
  }
  sets.push_back(sets[0]);
  const InvariantSet merged = MergeSets(sets);
  EXPECT_EQ(merged.invariants[0].origin["of"].size(), 3u);
  const InvariantSet two = MergeSets({sets[1], sets[2]});
  const InvariantSet again = MergeSets({sets[0], two});
  EXPECT_EQ(again.invariants[0].origin["of"],
            nlohmann::json::array({sets[0].invariants[0].origin,
                                   sets[1].invariants[0].origin,
                                   sets[2].invariants[0].origin}));
  EXPECT_TRUE(MergeSets({}).invariants.empty());
}

TEST(MergeSets, WhatComesAgainCountsOnce) {
  InvariantSet a, b;
  a.invariants = {Rule("1", Scope::kGeneral, "cnn")};
  b.invariants = {Rule("1", Scope::kGeneral, "mlp")};
  const InvariantSet both = MergeSets({a, b});
  for (const std::vector<InvariantSet>& sets :
       {std::vector<InvariantSet>{a, b, a}, {a, a, b}, {both, a}, {b, both}}) {
    const Invariant rule = MergeSets(sets).invariants[0];
    EXPECT_EQ(rule.support, 20u);
    EXPECT_EQ(rule.origin["of"].size(), 2u) << rule.origin;
  }
  EXPECT_EQ(MergeSets({a, a}).invariants[0].support, 10u);
  // Nobody knows what rules without an origin were shown by.
  a.invariants[0].origin = nullptr;
  EXPECT_EQ(MergeSets({a, a}).invariants[0].support, 20u);
}

TEST(LeaveOutDoubles, ABuiltInRuleSpeaksForLearnedOnesOfItsContent) {
  const nlohmann::json training = {{"all",
                                    {{{"clause", "constant"},
                                      {"fact", "call.stage"},
                                      {"value", "training"}}}}};
  const nlohmann::json made = {{"is", "fact"},
                               {"function", {{"category", "backward"}}},
                               {"fact", "loss.no_graph"},
                               {"value", false}};
  const nlohmann::json other = {{"is", "fact"},
                                {"function", {{"category", "backward"}}},
                                {"fact", "loss.broadcast"},
                                {"value", false}};
  Invariant built_in = NewInvariant("APIArg", made);
  built_in.origin = {{"format", "builtin"}};
  InvariantSet set;
  set.invariants = {NewInvariant("APIArg", other, training), built_in,
                    NewInvariant("APIArg", made, training)};
  LeaveOutDoubles(&set);
  ASSERT_EQ(set.invariants.size(), 2u);
  EXPECT_EQ(set.invariants[1].id, built_in.id);

  // Also where it is the built-in one that has a condition, or is in another
  // set, too.
  built_in = NewInvariant("APIArg", made, training);
  built_in.origin = {{"format", "merged"},
                     {"of", {{{"format", "builtin"}}, {{"runs", {"r"}}}}}};
  set.invariants = {built_in, NewInvariant("APIArg", made)};
  LeaveOutDoubles(&set);
  ASSERT_EQ(set.invariants.size(), 1u);
  EXPECT_EQ(set.invariants[0].id, built_in.id);
}

// An origin is any object that a file has.
TEST(MergeSets, OriginsThatNobodyHereWrote) {
  for (const nlohmann::json& origin :
       {nlohmann::json{{"format", 3}}, nlohmann::json{{"note", "by hand"}},
        nlohmann::json{{"format", "merged"}},
        nlohmann::json{{"format", "merged"}, {"of", "two"}}}) {
    std::vector<InvariantSet> sets(2);
    sets[0].invariants = {Rule("1", Scope::kGeneral, "cnn")};
    sets[0].invariants[0].origin = origin;
    sets[1].invariants = {Rule("1", Scope::kGeneral, "mlp")};
    const nlohmann::json merged = MergeSets(sets).invariants[0].origin;
    EXPECT_EQ(merged["format"], "merged") << origin;
    EXPECT_EQ(merged["of"][0], origin) << origin;
    EXPECT_EQ(merged["of"].size(), 2u) << origin;
  }
}

}  // namespace
}  // namespace traincheck
