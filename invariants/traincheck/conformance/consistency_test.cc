// ConsistencyRelation.
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

class ConsistencyTest : public SmallTraceTest {
 protected:
  static Json Consistent(const Json& precondition = Unconditional(),
                         const char* attribute = "data",
                         const char* other = "data") {
    return Rule("ConsistencyRelation",
                {Variable("torch.nn.Parameter", attribute),
                 Variable("torch.nn.Parameter", other)},
                "var", precondition);
  }
  // A line at the end, so that states last.
  void Last() { State("other", {{"x", 1}})["var_type"] = "Other"; }
};

TEST_F(ConsistencyTest, StatesThatOverlapMustBeEqual) {
  State("w", {{"data", 1}});
  On(2, 20);
  State("w", {{"data", 1.0}});
  Last();
  EXPECT_EQ(Verdict(Consistent()), "passed");
  lines()[1]["attributes"]["data"] = 2;
  const auto check = CheckAll({Consistent()});
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(VerdictOf(check->lines[0]), "failed");
  EXPECT_EQ(check->lines[0].reason, "the values are 1 and 2");
  ASSERT_EQ(check->lines[0].where.size(), 2u);
  EXPECT_EQ(check->lines[0].where[1].pid, 2);
  EXPECT_EQ(check->lines[0].where[1].what, "w");
}

TEST_F(ConsistencyTest, AHundredthOfOverlapIsTooLittle) {
  // w is 1 up to 1110 and v is 2 from `from`: together 100 from 1010 on.
  const auto verdict = [this](int64_t from) {
    lines().clear();
    State("w", {{"data", 1}})["time"] = 1010;
    State("v", {{"data", 2}})["time"] = from;
    State("w", {{"data", 2}})["time"] = 1110;
    State("v", {{"data", 2}})["time"] = 1110;
    State("x", {{"y", 1}})["time"] = 1110;
    lines().back()["var_type"] = "Other";
    return Verdict(Consistent());
  };
  EXPECT_EQ(verdict(1109), "not triggered");
  EXPECT_EQ(verdict(1108), "failed");
}

TEST_F(ConsistencyTest, ThePreconditionSeesTheLastRecordOfEachState) {
  Step(1);
  State("w", {{"data", 1}});
  State("v", {{"data", 2}});
  Step(2);
  State("v", {{"data", 2}});
  Last();
  const Json step = Where(Clause("consistent", "meta_vars.step"));
  EXPECT_EQ(Verdict(Consistent(step)), "not triggered");
  State("w", {{"data", 1}});
  Last();
  EXPECT_EQ(Verdict(Consistent(step)), "failed");
  const Json names = Where(Clause("unequal", "var_name"));
  EXPECT_EQ(Verdict(Consistent(names)), "failed");
  EXPECT_EQ(Verdict(Consistent(Where(Clause("consistent", "var_name")))),
            "not triggered");
}

TEST_F(ConsistencyTest, OneVariableWithoutTheAttributeSwitchesItOff) {
  State("w", {{"data", 1}});
  State("v", {{"data", 2}});
  State("u", {{"grad", 2}});
  Last();
  EXPECT_EQ(Verdict(Consistent()), "not triggered");
}

TEST_F(ConsistencyTest, TwoAttributesOfOneTypeStop) {
  State("w", {{"data", 1}, {"grad", 1}});
  Last();
  EXPECT_EQ(Verdict(Consistent(Unconditional(), "data", "grad")),
            "it compares w with itself");
}

TEST_F(ConsistencyTest, TwoTypesAreComparedInAllPairs) {
  State("w", {{"data", 1}});
  State("v", {{"data", 1}});
  State("t", {{"copy", 1}})["var_type"] = "torch.Tensor";
  Last();
  const Json rule = Rule("ConsistencyRelation",
                         {Variable("torch.nn.Parameter", "data"),
                          Variable("torch.Tensor", "copy")},
                         "var", Unconditional());
  EXPECT_EQ(Verdict(rule), "passed");
  lines()[1]["attributes"]["data"] = 3;
  EXPECT_EQ(Verdict(rule), "failed");
}

TEST_F(ConsistencyTest, ATypeThatIsNotThereDoesNotTrigger) {
  Call("m.f");
  EXPECT_EQ(Verdict(Consistent()), "not triggered");
}

TEST_F(ConsistencyTest, VariablesByNameStop) {
  State("w", {{"data", 1}});
  Json named = Variable("torch.nn.Parameter", "data");
  named["param_type"] = "VarNameParam";
  named["var_name"] = "w";
  EXPECT_EQ(Verdict(Rule("ConsistencyRelation", {named, named}, "var",
                         Unconditional())),
            "a Consistency of variables by name is not implemented there");
}

// What TrainCheck has written into a record stays there, for later lines too.
TEST_F(ConsistencyTest, ContextManagersStayInARecord) {
  const auto edge = [this](const char* name) {
    Begin(std::string("m.C.") + name)["obj_id"] = 5;
    End()["obj_id"] = 5;
  };
  edge("__init__");
  edge("__enter__");
  State("w", {{"data", 1}});
  edge("__exit__");
  State("v", {{"data", 2}});
  State("t", {{"data", 2}})["var_type"] = "torch.Tensor";
  Last();
  const Json active = Where(Clause("exist", "meta_vars.context_managers.m.C"));
  const Json first = Rule("ConsistencyRelation",
                          {Variable("torch.nn.Parameter", "data"),
                           Variable("torch.Tensor", "data")},
                          "var", active);
  const Json second = Rule("ConsistencyRelation",
                           {Variable("torch.Tensor", "data"),
                            Variable("torch.nn.Parameter", "data")},
                           "var", active);
  // With w first, the context of w is written into t. Without that line before
  // it, t first is outside of all contexts.
  EXPECT_EQ(Verdicts({second}), (std::vector<std::string>{"not triggered"}));
  EXPECT_EQ(Verdicts({first, second}),
            (std::vector<std::string>{"failed", "failed"}));
}

}  // namespace
}  // namespace traincheck
