#include "invariants/sets/set_ref.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(SetRef, IsANameOrANameAndAVersion) {
  EXPECT_EQ(ParseSetRef("rules")->name, "rules");
  EXPECT_EQ(ParseSetRef("rules")->version, 0u);
  EXPECT_EQ(ParseSetRef("rules@12")->name, "rules");
  EXPECT_EQ(ParseSetRef("rules@12")->version, 12u);
}

TEST(SetRef, OtherVersionsAreNamed) {
  for (const char* bad : {"rules@", "rules@0", "rules@-1", "rules@1x"}) {
    const absl::Status status = ParseSetRef(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_NE(status.message().find(bad), std::string::npos) << status;
  }
}

TEST(Selection, SeveralSetsAreSeparatedByCommas) {
  const auto selection = ParseSelection("builtin,rules@3");
  ASSERT_TRUE(selection.ok()) << selection.status();
  ASSERT_EQ(selection->sets.size(), 2u);
  EXPECT_EQ(ToText(selection->sets[0]), "builtin");
  EXPECT_EQ(ToText(selection->sets[1]), "rules@3");
  EXPECT_EQ(ParseSelection("rules")->sets.size(), 1u);
}

TEST(Selection, RulesThatAreLeftOutStandBehindAMinusSign) {
  const auto selection = ParseSelection("-b,rules@3,-a,builtin,-b");
  ASSERT_TRUE(selection.ok()) << selection.status();
  ASSERT_EQ(selection->sets.size(), 2u);
  EXPECT_EQ(selection->without, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ToText(*selection), "rules@3,builtin,-a,-b");
}

TEST(Selection, RulesThatAdviseStandBehindAQuestionMark) {
  const auto selection = ParseSelection("?b,rules@3,-c,?a,?b");
  ASSERT_TRUE(selection.ok()) << selection.status();
  EXPECT_EQ(selection->sets.size(), 1u);
  EXPECT_EQ(selection->advised, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ToText(*selection), "rules@3,-c,?a,?b");
}

TEST(Selection, AListWithoutAnySetOrWithOneTwiceIsNamed) {
  for (const char* bad : {"", ",", "a,", ",a", "a,,b", "a,a", "a@1,a@2", "-a",
                          "-", "a,-", "?a", "?", "a,?"}) {
    const absl::Status status = ParseSelection(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_NE(status.message().find(bad), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace traincheck
