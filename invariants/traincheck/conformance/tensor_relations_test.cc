// ConsistentOutput, ConsistentInputOutput and Threshold.
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

Json TensorOf(const Json& attributes) {
  return {{"torch.cuda.FloatTensor", attributes}};
}

class OutputTest : public SmallTraceTest {
 protected:
  static Json Output(const char* attribute, const Json& value,
                     const Json& precondition = Unconditional()) {
    Json variable = Variable("torch.Tensor", attribute);
    variable["const_value"] = value;
    return Rule("ConsistentOutputRelation", {Function("m.f"), variable},
                "pre_event", precondition);
  }
  void Return(const Json& value) {
    Begin("m.f");
    End(value);
  }
};

TEST_F(OutputTest, EachTensorMustHaveTheValue) {
  Return({TensorOf({{"dtype", "f16"}, {"shape", {2, 3}}, {"grad", nullptr}}),
          {{"int", 5}}});
  Return({{"torch.nn.Parameter",
           {{"dtype", "f16"}, {"shape", {2, 3}}, {"grad", nullptr}}}});
  EXPECT_EQ(Verdicts({Output("dtype", "f16"), Output("dtype", "f32"),
                      Output("shape", {2.0, 3}), Output("grad", nullptr),
                      Output("name", nullptr)}),
            (std::vector<std::string>{"passed", "failed", "passed", "passed",
                                      "failed"}));
}

TEST_F(OutputTest, WithoutAValueNothingIsEqualToIt) {
  Return(TensorOf({{"dtype", "f16"}}));
  EXPECT_EQ(Verdict(Rule("ConsistentOutputRelation",
                         {Function("m.f"), Variable("torch.Tensor", "dtype")},
                         "pre_event", Unconditional())),
            "failed");
}

TEST_F(OutputTest, ACallThatReturnsNoTensorFails) {
  Return({{"torch.dtype", "f16"}});
  EXPECT_EQ(Verdict(Output("dtype", "f16")), "failed");
  lines().clear();
  Return(TensorOf({{"dtype", "f16"}}));
  Begin("m.f");
  End().erase("return_values");
  EXPECT_EQ(Verdict(Output("dtype", "f16")), "failed");
}

TEST_F(OutputTest, ReturnValuesThatNoLineHasStop) {
  Begin("m.f");
  End().erase("return_values");
  EXPECT_EQ(Verdict(Output("dtype", "f16")),
            "return_values of the call id1 of m.f are not recorded, or not in "
            "TrainCheck's form");
  lines().back()["return_values"] = nullptr;
  EXPECT_NE(Verdict(Output("dtype", "f16")), "failed");
}

TEST_F(OutputTest, CallsThatDoNotReturnAreLeftAside) {
  Begin("m.f");
  Raise();
  EXPECT_EQ(Verdict(Output("dtype", "f16")), "not triggered");
  EXPECT_EQ(Verdict(Output("dtype", "f16",
                           Where(Clause("constant", "meta_vars.step", {7})))),
            "not triggered");
}

TEST_F(OutputTest, TheNewerDataIdIsTakenOutOfWhatIsReturned) {
  Return(TensorOf({{"_TRAINCHECK_data_ID", 1}}));
  EXPECT_EQ(Verdict(Output("_TRAINCHECK_data_ID", 1)), "failed");
  lines().clear();
  Return(TensorOf({{"_ML_DAIKON_data_ID", 1}}));
  EXPECT_EQ(Verdict(Output("_ML_DAIKON_data_ID", 1)), "passed");
  EXPECT_EQ(Verdict(Output("_TRAINCHECK_data_ID", 1)), "passed");
}

class InputOutputTest : public OutputTest {
 protected:
  static Json Equal(const Json& in, const Json& out) {
    return Rule("ConsistentInputOutputRelation", {in, Function("m.f"), out},
                "pre_event", Unconditional());
  }
  static Json Same(const Json& path, const Json& index = 0) {
    return Equal(Tensor("input_tensors", index, path),
                 Tensor("output_tensors", 0, path));
  }
  void CallOn(const Json& args, const Json& keywords, const Json& returned) {
    Json& begin = Begin("m.f");
    begin["args"] = args;
    begin["kwargs"] = keywords;
    End(returned);
  }
};

TEST_F(InputOutputTest, TensorsArePositionalFirstThenByKeyword) {
  CallOn({{"0", {{"int", 5}}}, {"1", TensorOf({{"shape", {1, 2}}})}},
         {{"other", TensorOf({{"shape", {7, 3}}})}},
         TensorOf({{"shape", {1, 3}}}));
  EXPECT_EQ(
      Verdicts({Same({"shape", 0}), Same({"shape", 1}), Same({"shape", 1}, 1),
                Same({"shape", -1}, -1), Same({"shape"}, 1)}),
      (std::vector<std::string>{"passed", "failed", "passed", "passed",
                                "failed"}));
}

TEST_F(InputOutputTest, ACallWithoutTheValueDoesNotCount) {
  CallOn({{"0", TensorOf({{"shape", {1, 2}}})}}, Json::object(),
         TensorOf({{"dtype", "f16"}}));
  EXPECT_EQ(Verdicts({Same({"shape", 0}), Same({"shape", 5}), Same({"name"}),
                      Same({"shape"}, 3)}),
            (std::vector<std::string>(4, "not triggered")));
}

TEST_F(InputOutputTest, PathsThatPythonCannotTakeStop) {
  CallOn({{"0", TensorOf({{"shape", {1, 2}}, {"ndim", 2}})}}, Json::object(),
         TensorOf({{"shape", {1, 2}}}));
  const std::string words =
      "the path of input_tensors leads into what is "
      "neither a list nor an object";
  EXPECT_EQ(Verdicts({Same({"shape", "x"}), Same({"ndim", 0}), Same(nullptr),
                      Same({"shape"}, nullptr)}),
            (std::vector<std::string>(4, words)));
}

TEST_F(InputOutputTest, ParamsInTheWrongOrderStop) {
  CallOn(Json::object(), Json::object(), TensorOf(Json::object()));
  EXPECT_EQ(Verdict(Equal(Tensor("output_tensors", 0, {"a"}),
                          Tensor("input_tensors", 0, {"a"}))),
            "one of its params must be an input and the other an output");
}

TEST_F(InputOutputTest, ArgumentsOfThisCallThatAreNotRecordedStop) {
  CallOn(Json::object(), Json::object(), TensorOf(Json::object()));
  CallOn(Json::object(), Json::object(), TensorOf(Json::object()));
  lines()[2].erase("args");
  EXPECT_EQ(Verdict(Same({"shape"})),
            "args of the call id2 of m.f are not recorded, or not in "
            "TrainCheck's form");
  // Where no line has arguments there are no tensors among them.
  for (Json& line : lines()) {
    line.erase("args");
    line.erase("kwargs");
  }
  EXPECT_EQ(Verdict(Same({"shape"})), "not triggered");
}

class ThresholdTest : public InputOutputTest {
 protected:
  static Json AtMost(const char* argument, const Json& path = nullptr) {
    return Rule("ThresholdRelation",
                {Tensor(argument, nullptr, path), Function("m.f"),
                 Tensor("output_tensors", 0, {"lengths", 0})},
                "pre_event", Unconditional());
  }
  static Json AtLeast(const char* argument) {
    return Rule("ThresholdRelation",
                {Tensor("output_tensors", 0, {"lengths", 0}), Function("m.f"),
                 Tensor(argument, nullptr, nullptr)},
                "pre_event", Unconditional());
  }
  void Generate(const Json& limit, const Json& length) {
    CallOn(Json::object(), {{"limit", {{"int", limit}}}},
           TensorOf({{"lengths", {length}}}));
  }
};

TEST_F(ThresholdTest, TheFirstParamIsTheLargerOne) {
  Generate(5, 5.0);
  EXPECT_EQ(Verdicts({AtMost("limit"), AtLeast("limit")}),
            (std::vector<std::string>{"passed", "passed"}));
  Generate(5, 6);
  EXPECT_EQ(Verdicts({AtMost("limit"), AtLeast("limit")}),
            (std::vector<std::string>{"failed", "passed"}));
  Generate(true, 0);
  EXPECT_EQ(Verdict(AtLeast("limit")), "failed");
}

TEST_F(ThresholdTest, WithoutCallsItDoesNotTrigger) {
  Call("m.g");
  EXPECT_EQ(Verdict(AtMost("limit")), "not triggered");
}

TEST_F(ThresholdTest, WhatIsMissingStops) {
  Generate(5, 5);
  EXPECT_EQ(Verdict(AtMost("other")),
            "the call id1 of m.f has no argument other by keyword");
  EXPECT_EQ(Verdict(AtMost("limit", {"a"})), "the argument limit has a path");
  lines().clear();
  CallOn(Json::object(), {{"limit", {{"int", 5}}}}, {{"int", 1}});
  EXPECT_EQ(Verdict(AtMost("limit")),
            "what m.f returns has no value at the path of the output");
  lines().clear();
  Generate("5", 5);
  EXPECT_EQ(Verdict(AtMost("limit")), "5 and 5 have no order");
}

}  // namespace
}  // namespace traincheck
