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

}  // namespace
}  // namespace traincheck
