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

TEST(SetRef, SeveralAreSeparatedByCommas) {
  const auto sets = ParseSetRefs("builtin,rules@3");
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->size(), 2u);
  EXPECT_EQ(ToText(sets->at(0)), "builtin");
  EXPECT_EQ(ToText(sets->at(1)), "rules@3");
  EXPECT_EQ(ParseSetRefs("rules")->size(), 1u);
}

TEST(SetRef, AListWithoutAnyOrWithOneTwiceIsNamed) {
  for (const char* bad : {"", ",", "a,", ",a", "a,,b", "a,a", "a@1,a@2"}) {
    const absl::Status status = ParseSetRefs(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_NE(status.message().find(bad), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace traincheck
