#include "ctl/render/probes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

std::string Row(const std::string& function, const std::string& rest) {
  return "{\"function\": \"" + function +
         "\", \"file\": \"train.py\", \"line\": 7, " + rest + "}\n";
}

TEST(ProbedFunctions, TheWorstOfSeveralCallsCounts) {
  const auto functions =
      ProbedFunctions(Row("t.A", "\"outcome\": \"equal\"") +
                      Row("t.B", "\"outcome\": \"on purpose\"") +
                      Row("t.A", "\"outcome\": \"differs\", \"ratio\": 2.0") +
                      Row("t.A", "\"outcome\": \"equal\""));
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].outcome, ProbeOutcome::kDiffers);
  EXPECT_EQ(functions[0].ratio, 2.0);
  EXPECT_EQ(functions[0].site, "train.py:7");
  EXPECT_EQ(CountDiffering(functions), 1u);
  EXPECT_EQ(
      ProbesText(functions),
      "2 hand-made backwards: 1 is deliberately no derivative (a step, or "
      "an input that is passed on), 1 is wrong");
}

TEST(ProbedFunctions, WhatIsNoLineIsLeftOut) {
  EXPECT_TRUE(ProbedFunctions("").empty());
  EXPECT_TRUE(ProbedFunctions("{\"function\": \"t.A\", \"outc").empty());
  EXPECT_TRUE(
      ProbedFunctions("[1]\n{}\n" + Row("t.A", "\"outcome\": \"unheard of\""))
          .empty());
  EXPECT_THAT(ProbesText({}), HasSubstr("no function"));
}

TEST(ProbeHeadline, SaysHowFarTheGradientsAreOff) {
  ProbedFunction function;
  function.function = "t.A";
  function.site = "train.py:7";
  EXPECT_EQ(ProbeHeadline(function),
            "the backward of t.A is not the derivative of its forward: its "
            "gradients are wrong (train.py:7)");
  function.ratio = 0.5;
  EXPECT_THAT(ProbeHeadline(function), HasSubstr("0.5 times the right ones"));
  function.ratio = -1;
  EXPECT_THAT(ProbeHeadline(function), HasSubstr("the wrong sign"));
}

}  // namespace
}  // namespace traincheck::ctl
