#include "invariants/rules/rule_notes.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

using nlohmann::json;

TEST(RuleNotes, AreOfTheOriginOrOfTheFirstPartThatHasAny) {
  const json written = {{"format", "builtin"}, {"why", "w"}, {"fix", "f"}};
  EXPECT_EQ(NotesOf(written).why, "w");
  EXPECT_EQ(NotesOf(written).fix, "f");
  EXPECT_EQ(NotesOf(written).reference, "");
  EXPECT_FALSE(NotesOf(written).advice);
  const json merged = {{"format", "merged"},
                       {"of", {{{"format", "learned"}}, written}}};
  EXPECT_EQ(NotesOf(merged).fix, "f");
  const json again = {{"format", "merged"},
                      {"of", {{{"format", "learned"}}, merged}}};
  EXPECT_EQ(NotesOf(again).why, "w");
  EXPECT_EQ(NotesOf(again).fix, "f");
}

TEST(RuleNotes, AdviceIsWhatItsAuthorCallsSo) {
  json advice = {{"format", "builtin"}, {"why", "w"}, {"grade", "advice"}};
  EXPECT_TRUE(NotesOf(advice).advice);
  EXPECT_TRUE(NotesOf({{"of", {{{"format", "learned"}}, advice}}}).advice);
  EXPECT_TRUE(NotesOf({{"of", {{{"of", {advice}}}}}}).advice);
  advice["grade"] = 3;
  EXPECT_FALSE(NotesOf(advice).advice);
}

TEST(RuleNotes, ARuleThatIsMadeAdviceKeepsItsWords) {
  const json written = {{"format", "builtin"}, {"why", "w"}};
  for (json origin :
       {written, json({{"of", {written}}}), json(), json({{"of", "x"}})}) {
    const RuleNotes before = NotesOf(origin);
    MakeAdvice(&origin);
    EXPECT_TRUE(NotesOf(origin).advice) << origin;
    EXPECT_EQ(NotesOf(origin).why, before.why) << origin;
  }
}

TEST(RuleNotes, WhatARuleBringsAreTexts) {
  const json origin = {{"why", "w"}, {"brings", {"a", 3, "b", json::array()}}};
  EXPECT_EQ(NotesOf(origin).brings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(NotesOf({{"of", {origin}}}).brings, NotesOf(origin).brings);
  for (const json& other : {json("a"), json({{"a", "b"}}), json(nullptr)}) {
    EXPECT_TRUE(NotesOf({{"brings", other}}).brings.empty()) << other;
  }
}

TEST(RuleNotes, AnyOriginIsTaken) {
  for (const json& origin :
       {json(), json(3), json::array({1}), json({{"why", 3}, {"of", "x"}}),
        json({{"of", {1, "x", {{"fix", false}}}}})}) {
    EXPECT_EQ(NotesOf(origin).why, "") << origin;
    EXPECT_EQ(NotesOf(origin).fix, "") << origin;
  }
}

}  // namespace
}  // namespace traincheck
