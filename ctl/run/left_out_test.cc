#include "ctl/run/left_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace traincheck::ctl {
namespace {

using testing::ElementsAre;

TEST(SelectionInWords, CountsTheRulesThatAreLeftOut) {
  EXPECT_EQ(SelectionInWords("builtin,rules@3"), "builtin,rules@3");
  EXPECT_EQ(SelectionInWords("builtin,-a"), "builtin without 1 rule");
  EXPECT_EQ(SelectionInWords("-b,builtin,-a"), "builtin without 2 rules");
  EXPECT_EQ(SelectionInWords("a,a"), "a,a");
}

TEST(LeftOutTexts, SayWhyAndWhoSaysSo) {
  v1::DisabledRule disabled;
  disabled.set_rule("b");
  disabled.set_reason("too many alarms");
  EXPECT_THAT(
      LeftOutTexts("builtin,-a,-b,-c", {{"a", "meant"}}, {disabled}),
      ElementsAre("rule a is left out, silenced by .traincheck.yaml: meant",
                  "rule b is left out, disabled on the server: too many alarms",
                  "rule c is left out, asked for with the sets"));
  EXPECT_THAT(LeftOutTexts("builtin", {{"a", "meant"}}, {}), ElementsAre());
}

}  // namespace
}  // namespace traincheck::ctl
