#include "ctl/preflight/families.h"

#include <algorithm>

#include "ctl/render/preflight.h"
#include "gtest/gtest.h"
#include "invariants/library/library.h"

namespace traincheck::ctl {
namespace {

TEST(FamiliesOfRules, EveryBuiltInRuleHasOne) {
  const auto families = FamiliesOfRules();
  const auto rules = BuiltInRules();
  ASSERT_TRUE(rules.ok());
  for (const Invariant& rule : rules->invariants) {
    EXPECT_EQ(families.count(rule.id), 1u) << rule.text;
  }
}

// A rule that is reworded would leave its stage unreached for ever.
TEST(NotReached, IsAboutRulesThatThereAre) {
  const auto rules = BuiltInRules();
  ASSERT_TRUE(rules.ok());
  for (const std::string& words : WordsOfStages()) {
    EXPECT_TRUE(std::any_of(rules->invariants.begin(), rules->invariants.end(),
                            [&words](const Invariant& rule) {
                              return rule.text.find(words) != std::string::npos;
                            }))
        << words;
  }
}

}  // namespace
}  // namespace traincheck::ctl
