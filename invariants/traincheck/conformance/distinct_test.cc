// DistinctArgumentRelation.
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

class DistinctTest : public SmallTraceTest {
 protected:
  static Json Distinct(const Json& precondition = Unconditional()) {
    return Rule("DistinctArgumentRelation", {Function("m.f")}, "distinct_arg",
                precondition);
  }
  Json& CallOn(const Json& args) {
    Json& begin = Begin("m.f");
    begin["args"] = args;
    End();
    return begin;
  }
  std::string Of(const Json& a, const Json& b) {
    lines().clear();
    CallOn({{"0", a}});
    CallOn({{"0", b}});
    return Verdict(Distinct());
  }
};

TEST_F(DistinctTest, TheSameArgumentsInOneStepFail) {
  const Json tensor = {{"torch.Tensor", {{"_ML_DAIKON_data_ID", 7}}}};
  Json other = tensor;
  other["torch.Tensor"]["_ML_DAIKON_data_ID"] = 8;
  EXPECT_EQ(Of(tensor, tensor), "failed");
  EXPECT_EQ(Of(tensor, other), "passed");
}

TEST_F(DistinctTest, StepsAreLookedAtOnTheirOwn) {
  CallOn({{"0", {{"int", 1}}}});
  Step(1);
  CallOn({{"0", {{"int", 1}}}});
  EXPECT_EQ(Verdict(Distinct()), "passed");
  lines().back()["meta_vars"]["step"] = 0;  // the end's does not count
  EXPECT_EQ(Verdict(Distinct()), "passed");
  lines()[2]["meta_vars"]["step"] = 0.0;
  EXPECT_EQ(Verdict(Distinct()), "failed");
}

TEST_F(DistinctTest, WithoutAnyStepAllIsOneStep) {
  CallOn({{"0", {{"int", 1}}}});
  CallOn({{"0", {{"int", 1}}}});
  for (Json& line : lines()) line.erase("meta_vars");
  EXPECT_EQ(Verdict(Distinct()), "failed");
}

TEST_F(DistinctTest, CallsWithoutAStepAmongOthersAreAlone) {
  CallOn({{"0", {{"int", 1}}}});
  CallOn({{"0", {{"int", 1}}}});
  CallOn({{"0", {{"int", 2}}}});
  lines()[0].erase("meta_vars");
  lines()[2].erase("meta_vars");
  EXPECT_EQ(Verdict(Distinct()), "passed");
}

TEST_F(DistinctTest, ThreadsAndProcessesAreCompared) {
  CallOn({{"0", {{"int", 1}}}});
  On(2, 20);
  CallOn({{"0", {{"int", 1}}}});
  EXPECT_EQ(Verdict(Distinct()), "failed");
}

TEST_F(DistinctTest, ValuesAreComparedWithTheirTypes) {
  const auto list = [](const Json& items) { return Json{{"list", items}}; };
  EXPECT_EQ(Of({{"int", 1}}, {{"int", 1.0}}), "passed");
  EXPECT_EQ(Of({{"int", 1}}, {{"int", true}}), "passed");
  EXPECT_EQ(Of({{"float", 1.0}}, {{"float", 1.000000001}}), "failed");
  EXPECT_EQ(Of({{"float", 1.0}}, {{"float", 1.0001}}), "passed");
  EXPECT_EQ(Of({{"NoneType", nullptr}}, {{"NoneType", nullptr}}), "failed");
  EXPECT_EQ(Of(list({"a"}), list({"a"})), "failed");
  EXPECT_EQ(Of(list({"a"}), list({"a", "b"})), "passed");
  // Of whole numbers a tenth in common is enough.
  EXPECT_EQ(Of(list({1, 2, 3, 4, 5}), list({1, 6, 7, 8, 9, 10})), "failed");
  EXPECT_EQ(Of(list({1, 2, 3, 4, 5, 6}), list({1, 7, 8, 9, 10, 11})), "passed");
  EXPECT_EQ(Of(list(Json::array()), list(Json::array())), "passed");
}

TEST_F(DistinctTest, DifferentNumbersOfArgumentsAreDistinct) {
  CallOn({{"0", {{"int", 1}}}});
  CallOn({{"0", {{"int", 1}}}, {"1", {{"int", 1}}}});
  EXPECT_EQ(Verdict(Distinct()), "passed");
}

TEST_F(DistinctTest, ThePreconditionIsAskedOnceOfAllCalls) {
  CallOn({{"0", {{"int", 1}}}});
  CallOn({{"0", {{"int", 1}}}});
  Step(1);
  CallOn({{"0", {{"int", 2}}}});
  EXPECT_EQ(Verdict(Distinct(Where(Clause("constant", "meta_vars.step", {0})))),
            "not triggered");
  EXPECT_EQ(Verdict(Distinct(Where(Clause("consistent", "function")))),
            "failed");
  EXPECT_EQ(Verdict(Distinct(Where(Clause("unequal", "func_call_id")))),
            "failed");
}

TEST_F(DistinctTest, ACallWithoutRecordedArgumentsIsLikeNone) {
  CallOn({{"0", {{"int", 1}}}}).erase("args");
  CallOn({{"0", {{"int", 1}}}});
  EXPECT_EQ(Verdict(Distinct()), "passed");
  lines()[2].erase("args");
  EXPECT_EQ(Verdict(Distinct()), "not triggered");
}

TEST_F(DistinctTest, ArgumentsInAnotherFormStop) {
  CallOn(nullptr);
  CallOn(nullptr);
  EXPECT_EQ(Verdict(Distinct()),
            "the arguments of a call of m.f are not in TrainCheck's form");
}

}  // namespace
}  // namespace traincheck
