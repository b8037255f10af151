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
  std::vector<v1::DisabledRule> disabled(1);
  disabled[0].set_rule("b");
  disabled[0].set_reason("too many alarms");
  EXPECT_THAT(
      LeftOutTexts("builtin,-a,-b,-c", {{"a", "meant"}}, &disabled),
      ElementsAre("rule a is left out, silenced by .traincheck.yaml: meant",
                  "rule b is left out, disabled on the server: too many alarms",
                  "rule c is left out, asked for with the sets"));
  EXPECT_THAT(LeftOutTexts("builtin", {{"a", "meant"}}, &disabled),
              ElementsAre());
}

TEST(LeftOutOf, DoesNotGuessWhyIfTheServerDoesNotAnswer) {
  const auto client = Client::Make("127.0.0.1:9");
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_THAT(
      LeftOutOf(client->get(), "builtin,-a,-b", {{"a", "meant"}}),
      ElementsAre("rule a is left out, silenced by .traincheck.yaml: meant",
                  "rule b is left out, and why is not known: the server did "
                  "not say which rules are disabled on it"));
}

}  // namespace
}  // namespace traincheck::ctl
