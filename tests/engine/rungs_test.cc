// Built-in rules on the ladder of causes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checker/incidents/families.h"
#include "invariants/library/library.h"

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

}  // namespace
}  // namespace traincheck
