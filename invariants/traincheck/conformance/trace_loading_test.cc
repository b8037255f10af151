// Reading a trace folder and an invariant file, and what TrainCheck does with
// calls that have no end.
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

class TraceLoadingTest : public SmallTraceTest {
 protected:
  static Json Contain(const char* parent, const char* child) {
    return Rule("APIContainRelation", {Function(parent), Function(child)},
                "parent_func_call_pre", Unconditional());
  }
  std::string ErrorOf(const std::string& line) {
    Write("trace_API_2_20.log", line + "\n");
    return std::string(CheckAll({Contain("m.f", "m.g")}).status().message());
  }
};

TEST_F(TraceLoadingTest, AMalformedLineIsNamed) {
  Call("m.f");
  Json line = lines()[0];
  line["process_id"] = 2;
  const auto without = [&line](const char* key) {
    Json copy = line;
    copy.erase(key);
    return copy.dump();
  };
  const auto with = [&line](const char* key, const Json& value) {
    Json copy = line;
    copy[key] = value;
    return copy.dump();
  };
  const std::string place = "trace_API_2_20.log: line 1: ";
  EXPECT_EQ(ErrorOf("{\"type\":"), place + "not valid JSON at byte 9");
  EXPECT_EQ(ErrorOf(""), place + "not valid JSON at byte 1");
  EXPECT_EQ(ErrorOf("[1]"), place + "not a JSON object");
  EXPECT_EQ(ErrorOf(without("type")), place + "type: missing");
  EXPECT_EQ(ErrorOf(with("type", "else")),
            place + "type: \"else\" is not a type of record");
  EXPECT_EQ(ErrorOf(without("process_id")), place + "process_id: missing");
  EXPECT_EQ(ErrorOf(with("time", -1)),
            place + "time: not an integer of 0 or more");
  EXPECT_EQ(ErrorOf(with("time", "x")),
            place + "time: not an integer of 0 or more");
  EXPECT_EQ(ErrorOf(without("func_call_id")), place + "func_call_id: missing");
  EXPECT_EQ(ErrorOf(with("function", 5)), place + "function: not a text");
  EXPECT_EQ(ErrorOf(with("type", "state_change")), place + "var_name: missing");
  EXPECT_EQ(ErrorOf(with("type", "function_call (post)")), "");
  // The second half of a line that was cut off.
  EXPECT_EQ(ErrorOf(line.dump() + "\n" + line.dump().substr(0, 50)),
            "trace_API_2_20.log: line 2: not valid JSON at byte 51");
}

TEST_F(TraceLoadingTest, AFolderWithoutATraceIsAnError) {
  Write("other.txt", "{}");
  EXPECT_EQ(CheckAll({Contain("m.f", "m.g")}).status().code(),
            absl::StatusCode::kNotFound);
  Write("trace_API_1_10.log", "");
  EXPECT_EQ(CheckAll({Contain("m.f", "m.g")}).status().message(),
            "the files of \"" + folder() + "\" hold no line");
  EXPECT_FALSE(CheckOfflineUntrusted(folder() + "/no", {}).ok());
}

TEST_F(TraceLoadingTest, AMalformedRuleIsNamed) {
  Call("m.f");
  Json bad = Contain("m.f", "m.g");
  bad["params"][1].erase("api_full_name");
  EXPECT_EQ(CheckAll({Contain("m.f", "m.g"), bad}).status().message(),
            "line 2: params[1].api_full_name: missing");
  bad["relation"] = "Guess";
  EXPECT_EQ(
      CheckAll({bad}).status().message(),
      "line 1: relation: \"Guess\" is not a relation of TrainCheck's that "
      "is known here");
  EXPECT_EQ(CheckAll({}).status().message(), "the file has no rules");
}

TEST_F(TraceLoadingTest, LinesKeepTheirNumbersAndEqualOnesStaySeveral) {
  Call("m.f");
  CheckAll({Contain("m.f", "m.g")}).IgnoreError();
  const std::string rule = Contain("m.f", "m.g").dump();
  const auto check = CheckFile("\n" + rule + "\n\n" + rule);
  ASSERT_TRUE(check.ok()) << check.status();
  ASSERT_EQ(check->lines.size(), 2u);
  EXPECT_EQ(check->lines[0].line, 2u);
  EXPECT_EQ(check->lines[1].line, 4u);
}

TEST_F(TraceLoadingTest, ADisabledRelationIsNotCheckable) {
  State("w", {{"data", 1}});
  EXPECT_EQ(Verdict(Rule("VarPeriodicChangeRelation",
                         {Variable("torch.nn.Parameter", "data")}, "var",
                         Unconditional())),
            "TrainCheck has this relation disabled");
}

TEST_F(TraceLoadingTest, NaNIsAMissingField) {
  Begin("m.f")["meta_vars"] = {{"rank", "NAN"}, {"size", "INFINITY"}};
  End();
  std::string text;
  for (const Json& line : lines()) text += line.dump() + "\n";
  lines().clear();
  // As Python writes them.
  text.replace(text.find("\"NAN\""), 5, "NaN");
  text.replace(text.find("\"INFINITY\""), 10, "Infinity");
  Write("trace_API_1_10.log", text);
  const auto when = [](const char* field) {
    return Rule("APIContainRelation", {Function("m.f"), Function("m.g")},
                "parent_func_call_pre", Where(Clause("exist", field)));
  };
  EXPECT_EQ(Verdicts({when("meta_vars.rank"), when("meta_vars.size")}),
            (std::vector<std::string>{"not triggered", "failed"}));
}

TEST_F(TraceLoadingTest, TheOutermostCallMayHaveNoEnd) {
  Begin("m.f");
  Call("m.g");
  EXPECT_EQ(Verdicts({Contain("m.f", "m.g"), Contain("m.f", "m.h"),
                      Contain("m.g", "m.h")}),
            (std::vector<std::string>{"passed", "failed", "failed"}));
}

TEST_F(TraceLoadingTest, UnderAnOutermostCallWithoutEndTheThreadIsCutOff) {
  Begin("m.f");
  Call("m.g");
  Begin("m.h");
  Call("m.i");
  EXPECT_EQ(Verdicts({Contain("m.f", "m.g"), Contain("m.f", "m.i"),
                      Contain("m.h", "m.i")}),
            (std::vector<std::string>{"passed", "failed", "not triggered"}));
}

TEST_F(TraceLoadingTest, UnderACompleteOutermostCallTheTraceIsRefused) {
  Begin("m.f");
  Call("m.g");
  Begin("m.h");
  lines().pop_back();
  Begin("m.h");
  End();
  End();  // of the m.h that lost its begin
  End();
  lines().erase(lines().end() - 2);
  Json lone = lines()[1];
  lone["func_call_id"] = "lone";
  lines().insert(lines().begin() + 1, lone);
  const auto check = CheckAll({Contain("m.f", "m.g")});
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->refused,
            "the call lone of m.g has no end, within m.f, which has one");
  EXPECT_EQ(VerdictOf(check->lines[0]),
            "TrainCheck refuses the trace: " + check->refused);
}

TEST_F(TraceLoadingTest, AnEndWithoutABeginRefusesTheTrace) {
  Call("m.f");
  lines().pop_front();
  EXPECT_EQ(Verdict(Contain("m.f", "m.g")),
            "TrainCheck refuses the trace: the call id1 of m.f ends and never "
            "began");
}

TEST_F(TraceLoadingTest, ThreeLinesOfOneCallRefuseTheTrace) {
  Call("m.f");
  lines().push_back(lines()[1]);
  EXPECT_EQ(Verdict(Contain("m.f", "m.g")),
            "TrainCheck refuses the trace: the call id1 of m.f has 3 lines");
}

TEST_F(TraceLoadingTest, AStateBeforeTheFirstCallRefusesIncompleteCalls) {
  State("w", {{"data", 1}});
  Begin("m.f");
  EXPECT_EQ(Verdict(Contain("m.f", "m.g")),
            "TrainCheck refuses the trace: the call id1 of m.f has no end, and "
            "the first line of process 1 is not the begin of a call");
}

TEST_F(TraceLoadingTest, OnAnotherThreadTheLastInstantIsForgiven) {
  Begin("m.f");
  Call("m.g");
  End();
  const int64_t end = lines().back()["time"];
  On(1, 11);
  Json& lone = Begin("m.h");
  lone["time"] = end;
  EXPECT_EQ(Verdict(Contain("m.f", "m.g")), "passed");
  EXPECT_EQ(Verdict(Contain("m.h", "m.g")), "not triggered");
}

}  // namespace
}  // namespace traincheck
