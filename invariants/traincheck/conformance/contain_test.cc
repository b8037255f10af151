// APIContainRelation.
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

class ContainTest : public SmallTraceTest {
 protected:
  static Json Contain(const Json& child,
                      const Json& precondition = Unconditional()) {
    return Rule("APIContainRelation", {Function("m.f"), child},
                "parent_func_call_pre", precondition);
  }
  static Json Change(const char* attribute, const Json& ends) {
    Json variable = Variable("torch.nn.Parameter", attribute);
    variable.update(ends);
    return Contain(variable);
  }
  // m.f with a change of w.data and of w.grad within it.
  void CallWithChange(const Json& before, const Json& after) {
    State("w", {{"data", before}});
    Begin("m.f");
    State("w", {{"data", after}});
    End();
  }
  std::string Changes(const Json& ends) {
    return Verdict(Change("data", ends));
  }
};

TEST_F(ContainTest, AChildAtAnyDepthCounts) {
  Begin("m.f");
  Begin("m.h");
  Call("m.g");
  End();
  End();
  EXPECT_EQ(Verdicts({Contain(Function("m.g")), Contain(Function("m.x"))}),
            (std::vector<std::string>{"passed", "failed"}));
}

TEST_F(ContainTest, EachCallNeedsItAndTheFirstWithoutIsTold) {
  Begin("m.f");
  Call("m.g");
  End();
  Step(1);
  Call("m.f");
  Step(2);
  Call("m.f");
  const auto check = CheckAll({Contain(Function("m.g"))});
  ASSERT_TRUE(check.ok()) << check.status();
  const JudgedLine& line = check->lines.at(0);
  EXPECT_EQ(VerdictOf(line), "failed");
  EXPECT_EQ(line.line, 1u);
  EXPECT_EQ(line.text, "Every call of m.f calls m.g.");
  EXPECT_EQ(line.reason, "it does not call m.g");
  ASSERT_EQ(line.where.size(), 1u);
  EXPECT_EQ(line.where[0].file, "trace_API_1_10.log");
  EXPECT_EQ(line.where[0].line, 5u);
  EXPECT_EQ(line.where[0].what, "m.f");
  EXPECT_EQ(line.where[0].step, "1");
}

TEST_F(ContainTest, AFunctionThatIsNotCalledDoesNotTrigger) {
  Call("m.g");
  EXPECT_EQ(Verdict(Contain(Function("m.g"))), "not triggered");
}

TEST_F(ContainTest, WhatRunsAtTheSameTimeOrElsewhereIsNotWithin) {
  Begin("m.f");
  On(1, 11);
  Call("m.g");
  On(1, 10);
  End();
  EXPECT_EQ(Verdict(Contain(Function("m.g"))), "failed");
  // A call that begins with its parent does not lie strictly within it.
  lines().clear();
  Begin("m.f");
  const int64_t time = lines().back()["time"];
  Begin("m.g")["time"] = time;
  End();
  End();
  EXPECT_EQ(Verdict(Contain(Function("m.g"))),
            "the call id4 has only one of its lines within a call of m.f");
}

TEST_F(ContainTest, AChildThatRaisesCountsWhereItIsAskedFor) {
  Begin("m.f");
  Begin("m.g");
  Raise();
  End();
  Json raises = Function("m.g");
  raises["exception"] = "ValueError";
  Json none = Function("m.g");
  none["exception"] = nullptr;
  EXPECT_EQ(
      Verdicts({Contain(Function("m.g")), Contain(raises), Contain(none)}),
      (std::vector<std::string>{"failed", "passed", "failed"}));
}

TEST_F(ContainTest, AParentThatRaisesIsCheckedToo) {
  Begin("m.f");
  Raise();
  EXPECT_EQ(Verdict(Contain(Function("m.g"))), "failed");
}

TEST_F(ContainTest, ArgumentsAreThoseByKeywordWithTheirTypes) {
  Begin("m.f");
  Begin("m.g")["kwargs"] = {{"val", {{"float", 1.0}}}, {"n", {{"int", 2}}}};
  End();
  End();
  const auto with = [](const Json& arguments) {
    Json child = Function("m.g");
    child["arguments"] = {{"args", arguments}, {"func_name", "m.g"}};
    return Contain(child);
  };
  Json any = Function("m.g");
  any["arguments"] = nullptr;
  EXPECT_EQ(
      Verdicts({with({{"val", {{"float", 1}}}}), with({{"val", {{"int", 1}}}}),
                with({{"other", {{"int", 1}}}}), with(Json::object()),
                Contain(any)}),
      (std::vector<std::string>{"passed", "failed", "failed", "passed",
                                "passed"}));
}

TEST_F(ContainTest, KeywordsThatAreNotRecordedStopAtArguments) {
  Begin("m.f");
  Begin("m.g").erase("kwargs");
  End();
  End();
  Json child = Function("m.g");
  child["arguments"] = {{"args", {{"n", {{"int", 1}}}}}, {"func_name", "m.g"}};
  EXPECT_EQ(Verdicts({Contain(child), Contain(Function("m.g"))}),
            (std::vector<std::string>{
                "the keyword arguments of the call id2 of m.g are not recorded",
                "passed"}));
}

TEST_F(ContainTest, AnotherCallThatReachesOutOfTheParentStops) {
  Begin("m.f");
  Begin("m.g");
  std::swap(lines()[0]["func_call_id"], lines()[1]["func_call_id"]);
  std::swap(lines()[0]["function"], lines()[1]["function"]);
  End();
  End();
  // m.g begins first and ends first.
  EXPECT_EQ(Verdict(Contain(Function("m.g"))),
            "the call id2 has only one of its lines within a call of m.f");
}

TEST_F(ContainTest, AChangeCountsFromBeginToEndInTheProcess) {
  CallWithChange(1, 2);
  lines().back()["time"] = lines()[2]["time"];
  EXPECT_EQ(Verdict(Change("data", Json::object())), "passed");
  lines()[2]["process_id"] = 2;
  EXPECT_EQ(Verdict(Change("data", Json::object())), "failed");
}

TEST_F(ContainTest, TheFirstStateIsNoChangeAndAnEqualOneNeither) {
  Begin("m.f");
  State("w", {{"data", 1}});
  State("w", {{"data", true}});
  End();
  EXPECT_EQ(Verdict(Change("data", Json::object())), "failed");
}

TEST_F(ContainTest, PropertiesAndOldIdsAreNoStates) {
  State("w", {{"is_leaf", true}, {"_ML_DAIKON_data_ID", 1}, {"mine", 1}});
  Begin("m.f");
  State("w", {{"is_leaf", false}, {"_ML_DAIKON_data_ID", 2}, {"mine", 2}});
  End();
  const Json any = Json::object();
  EXPECT_EQ(Verdicts({Change("is_leaf", any), Change("_ML_DAIKON_data_ID", any),
                      Change("mine", any)}),
            (std::vector<std::string>{"failed", "failed", "passed"}));
}

TEST_F(ContainTest, NewerIdsAreStates) {
  State("w", {{"_TRAINCHECK_data_ID", 1}});
  Begin("m.f");
  State("w", {{"_TRAINCHECK_data_ID", 2}});
  End();
  EXPECT_EQ(Verdict(Change("_TRAINCHECK_data_ID", Json::object())), "passed");
}

TEST_F(ContainTest, ValuesOfAChangeAreEqualOrSymbols) {
  CallWithChange(-2, nullptr);
  struct {
    Json ends;
    const char* verdict;
  } const cases[] = {
      {{{"pre_value", -2.0}, {"post_value", nullptr}}, "passed"},
      {{{"pre_value", 2}}, "failed"},
      {{{"post_value", 0}}, "failed"},
      {{{"pre_value", "below_zero"}}, "passed"},
      {{{"pre_value", "above_zero"}}, "failed"},
      {{{"pre_value", "non_zero"}}, "passed"},
      {{{"pre_value", "non_positive"}}, "passed"},
      {{{"pre_value", "non_negative"}}, "failed"},
      {{{"pre_value", "non_none"}}, "passed"},
      {{{"post_value", "above_zero"}}, "failed"},
      {{{"post_value", "below_zero"}}, "failed"},
      {{{"post_value", "non_zero"}}, "failed"},
      {{{"post_value", "non_positive"}}, "passed"},
      {{{"post_value", "non_negative"}}, "passed"},
      {{{"post_value", "non_none"}}, "failed"},
      {{{"post_value", "anything"}}, "passed"},
      {{{"post_value", "some_text"}}, "failed"},
  };
  for (const auto& [ends, verdict] : cases) {
    EXPECT_EQ(Changes(ends), verdict) << ends;
  }
}

TEST_F(ContainTest, ASymbolOfNumbersStopsAtOtherValues) {
  CallWithChange("a", Json::array({1}));
  EXPECT_EQ(Changes({{"pre_value", "above_zero"}}),
            "above_zero is asked of a, not a number");
  EXPECT_EQ(Changes({{"post_value", "non_none"}}), "passed");
  EXPECT_EQ(Changes({{"post_value", {1.0}}}), "passed");
  // The first end is enough to say no.
  EXPECT_EQ(Changes({{"pre_value", "b"}, {"post_value", "above_zero"}}),
            "failed");
}

TEST_F(ContainTest, AVariableByNameIsOneOfItsType) {
  CallWithChange(1, 2);
  Json variable = Variable("torch.nn.Parameter", "data");
  variable["param_type"] = "VarNameParam";
  variable["var_name"] = "another";
  EXPECT_EQ(Verdict(Contain(variable)), "passed");
}

class VarEventsTest : public ContainTest {
 protected:
  // The object of m.f has met w and v, and m.f changes w.
  void CallOnObject() {
    State("w", {{"data", 1}});
    State("v", {{"data", 1}});
    Json& before = Begin("m.before");
    before["is_bound_method"] = true;
    before["obj_id"] = 5;
    before["proxy_obj_names"] = Json::parse(
        R"([["w", "torch.nn.Parameter"], ["v", "torch.nn.Parameter"], )"
        R"(["", ""]])");
    End();
    Json& begin = Begin("m.f");
    begin["is_bound_method"] = true;
    begin["obj_id"] = 5;
    State("w", {{"data", 2}});
    End();
  }
  static Json WithGroup(const Json& group) {
    Json rule = Contain(Variable("torch.nn.Parameter", "data"));
    rule["precondition"]["var_events"] = group;
    return rule;
  }
};

TEST_F(VarEventsTest, UnchangedVariablesMustSatisfyIt) {
  CallOnObject();
  const Json v = Where(Clause("constant", "var_name", {"v"}));
  const Json w = Where(Clause("constant", "var_name", {"w"}));
  EXPECT_EQ(Verdicts({WithGroup(v), WithGroup(w), WithGroup(Unconditional())}),
            (std::vector<std::string>{"passed", "failed", "passed"}));
}

TEST_F(VarEventsTest, WithoutUnchangedVariablesTheEventDecides) {
  CallOnObject();
  lines()[2]["proxy_obj_names"] = Json::array({{"w", "torch.nn.Parameter"}});
  EXPECT_EQ(Verdict(WithGroup(Where(Clause("constant", "var_name", {"v"})))),
            "passed");
}

TEST_F(VarEventsTest, WhatIsNotRecordedStops) {
  CallOnObject();
  lines()[2].erase("proxy_obj_names");
  const Json rule = WithGroup(Where(Clause("exist", "var_name")));
  EXPECT_EQ(Verdict(rule), "proxy_obj_names is not recorded");
  lines()[4]["is_bound_method"] = false;
  EXPECT_EQ(Verdict(rule), "m.f is not bound to an object");
  Json call = Contain(Function("m.g"));
  call["precondition"]["var_events"] = Where(Clause("exist", "var_name"));
  EXPECT_EQ(Verdict(call), "var_events goes with a VarTypeParam only");
}

}  // namespace
}  // namespace traincheck
