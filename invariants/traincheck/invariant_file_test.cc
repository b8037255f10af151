#include "invariants/traincheck/invariant_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "invariants/sets/invariant_for_testing.h"
#include "invariants/sets/set_json.h"
#include "nlohmann/json.hpp"

namespace traincheck {
namespace {

using nlohmann::json;

// A line about these two functions.
std::string Line(const std::string& parent, const std::string& child,
                 const std::string& rest = "") {
  return R"({"text_description": "TBD merged", "relation": )"
         R"("APIContainRelation", "params": [{"param_type": "APIParam", )"
         R"("api_full_name": ")" +
         parent + R"("}, {"param_type": "APIParam", "api_full_name": ")" +
         child + R"("}], "precondition": {"parent_func_call_pre": )" +
         R"({"inverted": false, "preconditions": [{"clauses": )" +
         R"("Unconditional"}]}})" + rest + "}";
}

std::vector<json> LinesOf(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

// Reads a file, puts it through our own JSON and writes it again.
std::string RoundTrip(const std::string& text) {
  const auto rules = RulesFromFileUntrusted(text, {});
  if (!rules.ok()) return std::string(rules.status().message());
  InvariantSet set;
  set.name = "imported";
  set.invariants = *rules;
  const auto again = SetFromJsonUntrusted(ToJson(set).dump());
  if (!again.ok()) return std::string(again.status().message());
  return FileOfRules(again->invariants).text;
}

// The same JSON values, where 1 and 1.0 are two.
void ExpectSameLines(const std::string& before, const std::string& after) {
  const std::vector<json> want = LinesOf(before);
  const std::vector<json> got = LinesOf(after);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].dump(), want[i].dump()) << "line " << i + 1;
  }
}

std::string ErrorOf(const std::string& text) {
  const auto rules = RulesFromFileUntrusted(text, {});
  return rules.ok() ? "none" : std::string(rules.status().message());
}

TEST(InvariantFile, RuleBecomesAnInvariant) {
  const auto rules = RulesFromFileUntrusted(
      Line("torch.a", "torch.b",
           R"(, "num_positive_examples": 7, "num_negative_examples": null)"),
      {"vision"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_EQ(rules->size(), 1u);
  const Invariant& rule = rules->front();
  EXPECT_STREQ(rule.rule->relation_name(), "TrainCheck");
  EXPECT_TRUE(rule.precondition.empty());
  EXPECT_EQ(rule.scope, Scope::kGeneral);
  EXPECT_TRUE(rule.experiments.empty());
  EXPECT_EQ(rule.support, 7u);
  EXPECT_EQ(rule.text, "Every call of torch.a calls torch.b.");
  EXPECT_EQ(rule.origin, json::parse(R"({"format": "traincheck", "lines": [1],
                            "text_description": "TBD merged",
                            "num_positive_examples": 7,
                            "num_negative_examples": null})"));
}

TEST(InvariantFile, RulesOfUserCodeAreTheirExperiments) {
  const auto rules =
      RulesFromFileUntrusted(Line("__main__.f", "torch.b"), {"vision"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(rules->front().scope, Scope::kExperiment);
  EXPECT_EQ(rules->front().experiments, (std::vector<std::string>{"vision"}));
}

TEST(InvariantFile, LinesComeBackInTheirOrder) {
  std::string text;
  for (const char* child : {"torch.z", "torch.a", "torch.m", "torch.b"}) {
    text += Line("torch.p", child) + "\n";
  }
  ExpectSameLines(text, RoundTrip(text));
}

TEST(InvariantFile, SameRulesAreOneAndComeBackAsSeveral) {
  const std::string a = Line("torch.p", "torch.c");
  const std::string counted =
      Line("torch.p", "torch.c", R"(, "num_positive_examples": 3)");
  const std::string other = Line("torch.p", "torch.d");
  const std::string text =
      a + "\n" + counted + "\n" + other + "\n" + a + "\n" + counted + "\n";
  const auto rules = RulesFromFileUntrusted(text, {});
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(rules->size(), 2u);
  ExpectSameLines(text, RoundTrip(text));
}

// In a param null is a value, and an absent key is no condition.
TEST(InvariantFile, NullAndAbsentAreKeptApart) {
  const auto line = [](const std::string& rest) {
    return R"({"relation": "APIContainRelation", "params": [)"
           R"({"param_type": "APIParam", "api_full_name": "torch.f"}, )"
           R"({"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter",)"
           R"( "attr_name": "grad")" +
           rest + R"(}], "precondition": {"parent_func_call_pre": )" +
           R"({"inverted": true, "preconditions": []}}})";
  };
  const std::string text = line("") + "\n" + line(R"(, "pre_value": null)") +
                           "\n" + line(R"(, "pre_value": 0)") + "\n" +
                           line(R"(, "pre_value": 0.0)") + "\n";
  const auto rules = RulesFromFileUntrusted(text, {});
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(rules->size(), 4u);
  ExpectSameLines(text, RoundTrip(text));
}

TEST(InvariantFile, NumbersAreExact) {
  const auto line = [](const std::string& value) {
    return R"({"relation": "VarPeriodicChangeRelation", "params": [)"
           R"({"param_type": "VarTypeParam", "var_type": "t", "attr_name": )"
           R"("a", "const_value": )" +
           value + R"(}], "precondition": {"var": {"inverted": false, )" +
           R"("preconditions": []}}})";
  };
  std::string text;
  for (const char* value :
       {"9223372036854775807", "-9223372036854775808", "18446744073709551615",
        "0.1", "1e-300", "-0.0", "4503599627370497.5", "1", "1.0"}) {
    text += line(value) + "\n";
  }
  ExpectSameLines(text, RoundTrip(text));
  EXPECT_EQ(ErrorOf(line("18446744073709551616")),
            "line 1: an integer beyond 64 bits: 18446744073709551616");
  EXPECT_EQ(ErrorOf(line("NaN")).substr(0, 30),
            "line 1: not valid JSON at byte");
}

TEST(InvariantFile, BothPrefixesStayAsTheyAre) {
  std::string text;
  for (const char* prefix : {"_ML_DAIKON_", "_TRAINCHECK_"}) {
    text += R"({"relation": "ConsistencyRelation", "params": [)"
            R"({"param_type": "VarTypeParam", "var_type": "t", "attr_name": ")";
    text += prefix;
    text += R"(data_ID"}, {"param_type": "VarNameParam", "var_type": "t", )"
            R"("attr_name": "data", "var_name": "m.w"}], "precondition": )"
            R"({"var": {"inverted": false, "preconditions": [{"clauses": )"
            R"([{"type": "unequal", "prop_name": "attributes.)";
    text += prefix;
    text +=
        R"(grad_ID", "additional_path": ["a", 0], "prop_dtype": "int"}]}]}})"
        "}\n";
  }
  ExpectSameLines(text, RoundTrip(text));
}

TEST(InvariantFile, NothingIsHalfImported) {
  const std::string good = Line("torch.p", "torch.c") + "\n";
  EXPECT_EQ(ErrorOf(""), "the file has no rules");
  EXPECT_EQ(ErrorOf("\n\n"), "the file has no rules");
  EXPECT_EQ(ErrorOf(good + "\n" + good.substr(0, 40)).substr(0, 30),
            "line 3: not valid JSON at byte");
  EXPECT_EQ(ErrorOf(good + "[]"), "line 2: document: not an object");
  EXPECT_EQ(ErrorOf(good + R"({"relation": "APIContainRelation"})"),
            "line 2: params: missing");
  EXPECT_EQ(ErrorOf(good + Line("torch.p", "torch.c", R"(, "more": 1)")),
            "line 2: more: unknown key");
  EXPECT_EQ(ErrorOf(good + Line("torch.p", "")),
            "line 2: params[1].api_full_name: empty");
}

TEST(InvariantFile, DeepLinesAreRefused) {
  const std::string deep(100, '[');
  EXPECT_EQ(ErrorOf(deep), "line 1: nested deeper than 26");
}

TEST(InvariantFile, WhatIsLearnedHereHasNoFormThere) {
  const Invariant learned = NewInvariant("SavedEqualsLive", {{"what", "keys"}});
  const auto rules = RulesFromFileUntrusted(Line("torch.p", "torch.c"), {});
  ASSERT_TRUE(rules.ok());
  const RuleFile file = FileOfRules({learned, rules->front()});
  EXPECT_EQ(file.lines, 1u);
  EXPECT_EQ(file.left_out, 1u);
}

// An origin comes with a set that anybody may have written.
TEST(InvariantFile, OriginsAreNotTrusted) {
  const auto rules = RulesFromFileUntrusted(Line("torch.p", "torch.c"), {});
  ASSERT_TRUE(rules.ok());
  for (const char* origin :
       {R"({})", R"({"format": 3, "lines": [1]})",
        R"({"format": "traincheck", "lines": {"a": 1}})",
        R"({"format": "traincheck", "lines": [-1, "x", null]})",
        R"({"format": "traincheck", "copies": [3, {}]})"}) {
    Invariant rule = rules->front();
    rule.origin = json::parse(origin);
    const RuleFile file = FileOfRules({rule});
    EXPECT_EQ(file.lines, 1u) << origin;
    EXPECT_EQ(LinesOf(file.text)[0]["params"],
              rule.rule->parameters()["params"]);
  }
}

TEST(InvariantFile, TrainChecksOwnFilesComeBackAsTheyWere) {
  const char* const oracles = std::getenv("TRAINCHECK_ORACLES");
  if (oracles == nullptr) {
    GTEST_SKIP() << "TRAINCHECK_ORACLES names no folder of TrainCheck's files";
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(oracles) / "invariants")) {
    SCOPED_TRACE(entry.path());
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    ExpectSameLines(text.str(), RoundTrip(text.str()));
    ++files;
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace traincheck
