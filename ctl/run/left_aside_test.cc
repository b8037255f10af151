#include "ctl/run/left_aside.h"

#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

v1::SetDetail SetOf(const std::vector<std::string>& invariants) {
  v1::SetDetail set;
  set.mutable_summary()->set_name("s");
  for (const std::string& json : invariants) {
    set.add_invariants()->set_json(json);
  }
  return set;
}

TEST(LeftAsideTest, NamesTheExperimentAndWhatToDo) {
  EXPECT_EQ(LeftAsideText(SetOf({R"({"experiments": ["mnist"]})",
                                 R"({"experiments": ["mnist"]})"}),
                          "pkg.train"),
            "the rules of set s are of experiment mnist, this run is "
            "pkg.train: give --experiment mnist");
}

TEST(LeftAsideTest, NamesSeveralExperimentsAndNotAllOfMany) {
  EXPECT_EQ(LeftAsideText(SetOf({R"({"experiments": ["b", "a"]})"}), "c"),
            "the rules of set s are of experiments a, b, this run is c: give "
            "--experiment with one of them");
  EXPECT_EQ(
      LeftAsideText(
          SetOf({R"({"experiments": ["a","b","c","d","e","f","g"]})"}), "x"),
      "the rules of set s are of experiments a, b, c, d, e and 2 more, "
      "this run is x: give --experiment with one of them");
}

TEST(LeftAsideTest, RulesThatNameNoExperimentApplyNowhere) {
  EXPECT_EQ(LeftAsideText(SetOf({R"({"experiments": []})", "{", "3"}), "c"),
            "the rules of set s name no experiment and apply to no run: "
            "import them with --experiment");
}

TEST(LeftAsideTest, ASetOfWhichSomeRulesApplyIsNot) {
  v1::SetDetail set = SetOf({R"({"experiments": ["a"]})"});
  EXPECT_EQ(LeftAsideText(set, "a"), "");
  EXPECT_NE(LeftAsideText(set, "c"), "");
  set.add_invariants()->set_scope("general");
  EXPECT_EQ(LeftAsideText(set, "c"), "");
}

}  // namespace
}  // namespace traincheck::ctl
