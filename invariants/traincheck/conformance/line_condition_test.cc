// Preconditions, on the only function of a trace, which never calls m.g: the
// line fails where its precondition holds.
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

class LineConditionTest : public SmallTraceTest {
 protected:
  static Json When(const Json& precondition) {
    return Rule("APIContainRelation", {Function("m.f"), Function("m.g")},
                "parent_func_call_pre", precondition);
  }
  std::string With(const Json& clause) { return Verdict(When(Where(clause))); }

  // One call with these fields in meta_vars.
  void CallWith(const Json& meta) {
    Begin("m.f")["meta_vars"] = meta;
    End();
  }
};

TEST_F(LineConditionTest, ConstantsAreComparedAsPythonDoes) {
  CallWith({{"step", 1}, {"on", true}, {"none", nullptr}, {"name", "x"}});
  EXPECT_EQ(With(Clause("constant", "meta_vars.step", {1.0})), "failed");
  EXPECT_EQ(With(Clause("constant", "meta_vars.step", {true})), "failed");
  EXPECT_EQ(With(Clause("constant", "meta_vars.on", {0, 1})), "failed");
  EXPECT_EQ(With(Clause("constant", "meta_vars.none", {nullptr})), "failed");
  EXPECT_EQ(With(Clause("constant", "meta_vars.name", {"y", "x"})), "failed");
  EXPECT_EQ(With(Clause("constant", "meta_vars.step", {"1"})), "not triggered");
  EXPECT_EQ(With(Clause("constant", "process_id", {1})), "failed");
  EXPECT_EQ(With(Clause("constant", "function", {"m.f"})), "failed");
}

TEST_F(LineConditionTest, AFieldThatIsNotThereSatisfiesNothing) {
  CallWith({{"step", 1}, {"rank", 0}});
  CallWith({{"step", 2}});
  for (const char* type : {"consistent", "unequal", "exist"}) {
    EXPECT_EQ(With(Clause(type, "meta_vars.nowhere")), "not triggered");
    EXPECT_EQ(With(Clause(type, "meta_vars.rank")), "failed");
  }
  // The call without it is left aside: it is the second that remains.
  const Json second = Clause("constant", "meta_vars.step", {2});
  EXPECT_EQ(Verdict(When(AnyOf(
                {Json::array({second, Clause("exist", "meta_vars.rank")})}))),
            "not triggered");
}

TEST_F(LineConditionTest, ListsAndObjectsOnlyExist) {
  CallWith({{"list", {1, 2}}, {"empty", Json::object()}});
  for (const char* field : {"meta_vars.list", "meta_vars.empty", "kwargs"}) {
    EXPECT_EQ(With(Clause("exist", field)), "failed");
    EXPECT_EQ(With(Clause("consistent", field)), "not triggered");
  }
}

TEST_F(LineConditionTest, OfOneRecordEachFieldIsConsistentAndUnequal) {
  CallWith({{"rank", 3}});
  EXPECT_EQ(With(Clause("consistent", "meta_vars.rank")), "failed");
  EXPECT_EQ(With(Clause("unequal", "meta_vars.rank")), "failed");
}

TEST_F(LineConditionTest, AlternativesAreOrAndClausesAnd) {
  CallWith({{"a", 1}, {"b", 2}});
  const Json a = Clause("constant", "meta_vars.a", {1});
  const Json b = Clause("constant", "meta_vars.b", {2});
  const Json not_b = Clause("constant", "meta_vars.b", {3});
  const auto verdict = [&](const std::vector<Json>& any, bool inverted) {
    return Verdict(When(AnyOf(any, inverted)));
  };
  EXPECT_EQ(verdict({Json::array({a, b})}, false), "failed");
  EXPECT_EQ(verdict({Json::array({a, not_b})}, false), "not triggered");
  EXPECT_EQ(verdict({Json::array({not_b}), Json::array({a})}, false), "failed");
  EXPECT_EQ(verdict({Json::array({not_b}), Json::array({a})}, true),
            "not triggered");
  EXPECT_EQ(verdict({Json::array({not_b})}, true), "failed");
  EXPECT_EQ(verdict({}, false), "not triggered");
  EXPECT_EQ(verdict({}, true), "failed");
  EXPECT_EQ(verdict({Json::array()}, false), "failed");
}

TEST_F(LineConditionTest, AStageIsInitWhereALineHasNone) {
  CallWith({{"step", 1}});
  CallWith({{"step", 1}, {"stage", "training"}});
  EXPECT_EQ(With(Clause("constant", "meta_vars.stage", {"init"})), "failed");
  EXPECT_EQ(With(Clause("constant", "meta_vars.stage", {"testing"})),
            "not triggered");
}

TEST_F(LineConditionTest, WithoutAnyStageThereIsNone) {
  CallWith({{"step", 1}});
  EXPECT_EQ(With(Clause("exist", "meta_vars.stage")), "not triggered");
}

TEST_F(LineConditionTest, FieldsOfNestedObjectsHaveDotsInTheirNames) {
  CallWith({{"a/b.py:__init__", {{"step_size", 5}}}});
  EXPECT_EQ(
      With(Clause("constant", "meta_vars.a/b.py:__init__.step_size", {5})),
      "failed");
}

TEST_F(LineConditionTest, BothPrefixesAreOne) {
  CallWith({{"_DP", 1}});
  lines()[0]["attributes"] = {{"_TRAINCHECK_data_ID", 7}};
  EXPECT_EQ(With(Clause("constant", "attributes._ML_DAIKON_data_ID", {7})),
            "failed");
}

class ContextManagerTest : public LineConditionTest {
 protected:
  static constexpr char kField[] = "meta_vars.context_managers.m.Autocast";

  void Edge(const std::string& name, int object, const Json& keywords) {
    Json& begin = Begin("m.Autocast." + name);
    begin["obj_id"] = object;
    begin["kwargs"] = keywords;
    End()["obj_id"] = object;
  }
  void Enter(int object, const Json& keywords) {
    Edge("__init__", object, keywords);
    Edge("__enter__", object, Json::object());
  }
  void Exit(int object) { Edge("__exit__", object, Json::object()); }
};

TEST_F(ContextManagerTest, OneThatIsActiveIsAFieldOfItsArguments) {
  Enter(5, {{"dtype", {{"torch.dtype", "f16"}}}, {"on", {{"bool", true}}}});
  Call("m.f");
  Exit(5);
  EXPECT_EQ(With(Clause("exist", kField)), "failed");
  EXPECT_EQ(With(Clause("constant", kField, {"f16"}, {"dtype"})), "failed");
  EXPECT_EQ(With(Clause("constant", kField, {1}, {"on"})), "failed");
  EXPECT_EQ(With(Clause("constant", kField, {"f32"}, {"dtype"})),
            "not triggered");
  EXPECT_EQ(With(Clause("exist", kField, nullptr, {"device"})),
            "not triggered");
  // As older files spell it.
  const std::string spelled = std::string(kField) + ".dtype";
  EXPECT_EQ(With(Clause("exist", spelled.c_str())), "not triggered");
}

// The order of the files counts, not that of the times.
TEST_F(ContextManagerTest, TheFirstLineBehindItLeavesIt) {
  Enter(5, Json::object());
  Exit(5);
  Exit(5);
  Call("m.f");
  // The exit that stands first is behind the call by now.
  const int64_t after = lines().back()["time"];
  lines()[4]["time"] = after + 10;
  lines()[5]["time"] = after + 20;
  EXPECT_EQ(With(Clause("exist", kField)), "failed");
}

TEST_F(ContextManagerTest, ObjectsAreEqualAcrossTypes) {
  Enter(5, Json::object());
  Call("m.f");
  Begin("m.Autocast.__exit__")["obj_id"] = 5.0;
  End()["obj_id"] = 5.0;
  EXPECT_EQ(With(Clause("exist", kField)), "failed");
}

// With a look at every edge for each __init__ this would take minutes. Written
// as text, which takes the least of the time.
TEST_F(ContextManagerTest, ManyOfOneClassAreNotComparedWithEachOther) {
  constexpr int kContexts = 50'000;
  std::string text;
  int number = 0;
  const auto call = [&](const std::string& function, int object) {
    const std::string id = std::to_string(++number);
    for (const char* type : {"(pre)", "(post)"}) {
      text += std::string(R"({"type": "function_call )") + type +
              R"(", "process_id": 1, "thread_id": 10, "time": )" +
              std::to_string(1000 + text.size()) + R"(, "func_call_id": ")" +
              id + R"(", "function": "m.)" + function +
              R"(", "args": {}, "kwargs": {}, "obj_id": )" +
              std::to_string(object) + "}\n";
    }
  };
  for (int i = 0; i < kContexts; ++i) call("Autocast.__init__", 5 + i);
  for (int i = 0; i < kContexts; ++i) call("Autocast.__enter__", 4);
  call("f", 4);
  Write("trace_API_1_10.log", text);
  EXPECT_EQ(With(Clause("exist", kField)), "not triggered");
}

TEST_F(ContextManagerTest, OutsideOfItIsNoField) {
  Enter(5, Json::object());
  Exit(5);
  Call("m.f");
  EXPECT_EQ(With(Clause("exist", kField)), "not triggered");
}

TEST_F(ContextManagerTest, OneThatIsNotLeftIsNotActive) {
  Enter(5, Json::object());
  Call("m.f");
  Exit(6);
  EXPECT_EQ(With(Clause("exist", kField)), "not triggered");
}

TEST_F(ContextManagerTest, OfTwoOfOneClassTheOneMadeLastCounts) {
  Enter(5, {{"n", {{"int", 1}}}});
  Enter(6, {{"n", {{"int", 2}}}});
  Call("m.f");
  Exit(6);
  Exit(5);
  EXPECT_EQ(With(Clause("constant", kField, {2}, {"n"})), "failed");
  EXPECT_EQ(With(Clause("constant", kField, {1}, {"n"})), "not triggered");
}

TEST_F(ContextManagerTest, OtherThreadsDoNotSeeIt) {
  Enter(5, Json::object());
  On(1, 11);
  Call("m.f");
  On(1, 10);
  Exit(5);
  EXPECT_EQ(With(Clause("exist", kField)), "not triggered");
}

TEST_F(ContextManagerTest, ArgumentsInAnotherFormStopWhereItIsActive) {
  Enter(5, {{"n", 1}});
  Call("m.f");
  Exit(5);
  Call("m.h");
  EXPECT_EQ(Verdict(When(Unconditional())),
            std::string(kField) + " has arguments without a type");
  const Json other =
      Rule("APIContainRelation", {Function("m.h"), Function("m.g")},
           "parent_func_call_pre", Unconditional());
  EXPECT_EQ(Verdict(other), "failed");
}

TEST_F(LineConditionTest, APathThatPythonCannotTakeStops) {
  CallWith({{"n", 5}, {"text", "abc"}});
  EXPECT_EQ(With(Clause("exist", "meta_vars.n", nullptr, {"a"})),
            "the clause on meta_vars.n looks for a in 5");
  EXPECT_EQ(With(Clause("exist", "meta_vars.text", nullptr, {"b"})),
            "the clause on meta_vars.text looks for b in abc");
  EXPECT_EQ(With(Clause("exist", "meta_vars.text", nullptr, {"z"})),
            "not triggered");
}

TEST_F(LineConditionTest, WhatTrainCheckDoesNotReadIsNotCheckable) {
  CallWith({{"n", 5}});
  const std::string values =
      "TrainCheck does not read a clause with a list "
      "or an object among its values";
  EXPECT_EQ(With(Clause("constant", "meta_vars.n", Json::parse("[[1]]"))),
            values);
  EXPECT_EQ(With(Clause("constant", "meta_vars.n", Json::array())),
            "TrainCheck does not read a constant clause of no values");
  EXPECT_EQ(With(Clause("exist", "meta_vars.n", nullptr, nullptr)),
            "TrainCheck does not read a clause whose path is null");
  EXPECT_EQ(Verdict(When(AnyOf({"Unconditional", Json::array()}))),
            "TrainCheck does not read an unconditional precondition beside "
            "others");
}

}  // namespace
}  // namespace traincheck
