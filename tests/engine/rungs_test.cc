// Built-in rules on the ladder of causes.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "checker/incidents/families.h"
#include "invariants/library/library.h"
#include "invariants/rules/rule_notes.h"

namespace traincheck {
namespace {

// A rule of principle that was taken for one on the structure of programs would
// be hidden behind any other.
TEST(Rungs, NoBuiltInRuleIsAboutStructure) {
  const auto library = BuiltInRules();
  ASSERT_TRUE(library.ok()) << library.status();
  for (const Invariant& rule : library->invariants) {
    EXPECT_FALSE(PlaceOf(*rule.rule).structure) << rule.text;
  }
}

TEST(Rungs, StandWhereTheRulesOfATypicalErrorLeadToItsCause) {
  // Rules by text, from cause to symptom.
  const std::vector<std::string> ladder = {"it goes through its wrapper",
                                           "have equal gradients of parameters",
                                           "have equal parameters"};
  const auto library = BuiltInRules();
  ASSERT_TRUE(library.ok()) << library.status();
  std::vector<Rung> rungs;
  for (const std::string& words : ladder) {
    for (const Invariant& rule : library->invariants) {
      if (rule.text.find(words) == std::string::npos) continue;
      rungs.push_back(PlaceOf(*rule.rule).rung);
      break;
    }
  }
  EXPECT_EQ(rungs, (std::vector<Rung>{Rung::kSetup, Rung::kGradient,
                                      Rung::kReplicas}));
}

// What leads an incident is found by the ladder, so nothing may be brought by
// what stands below it.
TEST(Rungs, RulesBringWhatStandsBelowThem) {
  const auto library = BuiltInRules();
  ASSERT_TRUE(library.ok()) << library.status();
  struct Stand {
    Rung rung = Rung::kSetup;
    bool advice = false;
  };
  std::map<std::string, Stand> stands;
  for (const Invariant& rule : library->invariants) {
    const RuleNotes notes = NotesOf(rule.origin);
    stands[notes.headline] = {PlaceOf(*rule.rule).rung, notes.advice};
  }
  for (const Invariant& rule : library->invariants) {
    const RuleNotes notes = NotesOf(rule.origin);
    const Stand& cause = stands.at(notes.headline);
    for (const std::string& brought : notes.brings) {
      SCOPED_TRACE(notes.headline + " -> " + brought);
      const Stand& effect = stands.at(brought);
      EXPECT_LE(cause.advice, effect.advice);
      if (cause.advice == effect.advice) {
        EXPECT_LE(static_cast<int>(cause.rung), static_cast<int>(effect.rung));
      }
    }
  }
}

}  // namespace
}  // namespace traincheck
