#include "invariants/library/library.h"

#include <gtest/gtest.h>

#include <set>

#include "invariants/rules/rule_notes.h"
#include "invariants/sets/set_plan.h"

namespace traincheck {
namespace {

TEST(Library, EachRuleSaysWhatPeopleNeed) {
  const auto families = BuiltInFamilies();
  ASSERT_TRUE(families.ok()) << families.status();
  ASSERT_FALSE(families->empty());
  std::set<std::string> headlines;
  for (const InvariantSet& family : *families) {
    SCOPED_TRACE(family.name);
    EXPECT_EQ(family.name.rfind("builtin.", 0), 0u);
    EXPECT_FALSE(family.invariants.empty());
    for (const Invariant& rule : family.invariants) {
      SCOPED_TRACE(rule.text);
      EXPECT_EQ(rule.scope, Scope::kGeneral);
      EXPECT_TRUE(rule.experiments.empty());
      EXPECT_EQ(rule.origin.value("format", ""), "builtin");
      const std::string grade = rule.origin.value("grade", "");
      EXPECT_TRUE(grade == "alert" || grade == "advice") << grade;
      for (const char* key : {"why", "fix"}) {
        const std::string words = rule.origin.value(key, "");
        ASSERT_FALSE(words.empty()) << key;
        EXPECT_EQ(words.back(), '.') << key;
      }
      const std::string headline = rule.origin.value("headline", "");
      ASSERT_FALSE(headline.empty());
      EXPECT_LE(headline.size(), 95u) << headline;
      EXPECT_NE(headline.back(), '.') << headline;
      EXPECT_TRUE(headlines.insert(headline).second) << headline;
      EXPECT_EQ(rule.origin.value("reference", "").rfind("https://", 0), 0u);
    }
  }
}

TEST(Library, WhatARuleBringsAreOtherRules) {
  const auto families = BuiltInFamilies();
  ASSERT_TRUE(families.ok()) << families.status();
  std::set<std::string> headlines;
  for (const InvariantSet& family : *families) {
    for (const Invariant& rule : family.invariants) {
      headlines.insert(NotesOf(rule.origin).headline);
    }
  }
  size_t brought = 0;
  for (const InvariantSet& family : *families) {
    for (const Invariant& rule : family.invariants) {
      const RuleNotes notes = NotesOf(rule.origin);
      const std::set<std::string> brings(notes.brings.begin(),
                                         notes.brings.end());
      EXPECT_EQ(brings.size(), notes.brings.size()) << notes.headline;
      EXPECT_EQ(brings.count(notes.headline), 0u) << notes.headline;
      for (const std::string& other : brings) {
        EXPECT_EQ(headlines.count(other), 1u) << other;
      }
      brought += brings.size();
    }
  }
  EXPECT_GT(brought, 0u);
}

// A rule on a category that agents do not record under every plan would: a plan
// names functions. Everything would be recorded in every training.
TEST(Library, NoRuleMakesThePlanAskForAllCalls) {
  const auto rules = BuiltInRules();
  ASSERT_TRUE(rules.ok()) << rules.status();
  for (const Invariant& rule : rules->invariants) {
    const nlohmann::json plan = PlanOf({rule});
    for (const nlohmann::json& call : plan["calls"]) {
      EXPECT_NE(call["function"], "*") << rule.text;
    }
  }
}

TEST(Library, NoRuleIsInTwoFamilies) {
  const auto families = BuiltInFamilies();
  ASSERT_TRUE(families.ok()) << families.status();
  std::set<std::string> ids;
  for (const InvariantSet& family : *families) {
    for (const Invariant& rule : family.invariants) {
      EXPECT_TRUE(ids.insert(rule.id).second) << rule.text;
    }
  }
  EXPECT_EQ(BuiltInRules()->invariants.size(), ids.size());
}

}  // namespace
}  // namespace traincheck
