// Forms, words and native counterparts of TrainCheck's rules.
#include <gtest/gtest.h>

#include "invariants/relations/registry.h"
#include "invariants/relations/traincheck_rules/names.h"
#include "invariants/relations/traincheck_rules/rule_form.h"
#include "invariants/relations/traincheck_rules/rule_words.h"
#include "invariants/relations/traincheck_rules/translation.h"
#include "invariants/rules/precondition.h"

namespace traincheck {
namespace {

using nlohmann::json;

const json kAlways = {{"inverted", false},
                      {"preconditions", {{{"clauses", "Unconditional"}}}}};

json Api(const char* name) {
  return {{"param_type", "APIParam"}, {"api_full_name", name}};
}

json Variable(const char* attribute) {
  return {{"param_type", "VarTypeParam"},
          {"var_type", "torch.nn.Parameter"},
          {"attr_name", attribute}};
}

json Tensor(bool is_input, json path) {
  return {{"param_type", "InputOutputParam"},
          {"name", is_input ? "input_tensors" : "output_tensors"},
          {"index", 0},
          {"type", "torch.Tensor"},
          {"additional_path", std::move(path)},
          {"api_name", "torch.relu"},
          {"is_input", is_input}};
}

json Rule(const char* relation, json params, const char* group,
          json condition = kAlways) {
  return {{"relation", relation},
          {"params", std::move(params)},
          {"precondition", {{group, std::move(condition)}}}};
}

json Constant(const char* name, json values) {
  return {{"type", "constant"},
          {"prop_name", name},
          {"additional_path", "None"},
          {"prop_dtype", "str"},
          {"values", std::move(values)}};
}

json When(json clauses, bool inverted = false) {
  return {{"inverted", inverted},
          {"preconditions", {{{"clauses", std::move(clauses)}}}}};
}

json Contain(json child, json condition = kAlways) {
  return Rule("APIContainRelation", {Api("torch.optim.sgd.SGD.step"), child},
              "parent_func_call_pre", std::move(condition));
}

std::string ErrorOf(const json& rule) {
  return std::string(CheckRuleForm(rule, "").message());
}

// One rule of each relation, and its words.
struct Sample {
  json rule;
  const char* words;
};

std::vector<Sample> Samples() {
  json changed = Variable("data");
  changed["pre_value"] = nullptr;
  changed["post_value"] = "non_zero";
  json filled = Api("torch.nn.init._no_grad_fill_");
  filled["arguments"] = {{"args", {{"val", {{"float", 1.5}}}}},
                         {"func_name", "torch.nn.init._no_grad_fill_"}};
  json dtype = Variable("dtype");
  dtype["const_value"] = "torch.float16";
  json named = Variable("_ML_DAIKON_data_ID");
  named["param_type"] = "VarNameParam";
  named["var_name"] = "model.fc.weight";
  json most = Tensor(true, nullptr);
  most["name"] = "max_length";
  most["index"] = nullptr;
  return {
      {Contain(filled),
       "Every call of torch.optim.sgd.SGD.step calls "
       "torch.nn.init._no_grad_fill_ with val=1.5."},
      {Contain(changed),
       "Every call of torch.optim.sgd.SGD.step changes the data of a "
       "torch.nn.Parameter from None to a value that is not 0."},
      {Rule("ConsistencyRelation", {Variable("data"), named}, "var"),
       "Variables agree: the data of a torch.nn.Parameter equals the data_ID "
       "of model.fc.weight."},
      {Rule("FunctionCoverRelation", {Api("a.f"), Api("a.g")}, "func_cover"),
       "Before each call of a.g, and after the one before it, a.f is called."},
      {Rule("FunctionLeadRelation", {Api("a.f"), Api("a.g"), Api("a.h")},
            "func_lead"),
       "After each of these the next is called: a.f, then a.g, then a.h."},
      {Rule("ConsistentOutputRelation", {Api("torch.relu"), dtype},
            "pre_event"),
       "Tensors that torch.relu returns have dtype torch.float16."},
      {Rule("ConsistentInputOutputRelation",
            {Tensor(true, {"shape", 0}), Api("torch.relu"),
             Tensor(false, {"shape", 1})},
            "pre_event"),
       "In each call of torch.relu, shape[0] of input tensor 0 equals "
       "shape[1] of output tensor 0."},
      {Rule("ThresholdRelation",
            {most, Api("torch.relu"), Tensor(false, {"_TRAINCHECK_LEN", 0})},
            "pre_event"),
       "In each call of torch.relu, argument max_length is at least LEN[0] of "
       "output tensor 0."},
      {Rule("DistinctArgumentRelation", {Api("torch._C.TensorBase.normal_")},
            "distinct_arg"),
       "Calls of torch.Tensor.normal_ within one step get different "
       "arguments."},
      {Rule("VarPeriodicChangeRelation", {Variable("grad")}, "var"),
       "Again and again the grad of a torch.nn.Parameter takes the value."},
  };
}

TEST(RuleForm, TakesEachRelation) {
  for (const Sample& sample : Samples()) {
    EXPECT_EQ(ErrorOf(sample.rule), "") << sample.rule;
    EXPECT_EQ(DescribeRule(sample.rule), sample.words);
  }
}

TEST(RuleForm, SaysWhatIsWrongAndWhere) {
  json rule = Contain(Api("a.f"));
  rule["params"][0].erase("param_type");
  EXPECT_EQ(ErrorOf(rule), "params[0].param_type: missing");
  rule = Contain({{"param_type", "StrangeParam"}});
  EXPECT_EQ(
      ErrorOf(rule),
      "params[1].param_type: \"StrangeParam\" is not a kind of param that "
      "is known here");
  rule = Contain(Tensor(true, nullptr));
  EXPECT_EQ(ErrorOf(rule),
            "params[1].param_type: InputOutputParam does not stand here in "
            "this relation");
  rule = Contain(Api("a.f"));
  rule["relation"] = "Other";
  EXPECT_EQ(
      ErrorOf(rule),
      "relation: \"Other\" is not a relation of TrainCheck's that is known "
      "here");
  rule = Contain(Api("a.f"));
  rule["params"].push_back(Api("a.g"));
  EXPECT_EQ(ErrorOf(rule), "params: has 3, APIContainRelation has 2");
  rule = Contain(Api("a.f"));
  rule["params"][1]["arguments"] = {{"args", {{"x", 3}}}};
  EXPECT_EQ(
      ErrorOf(rule),
      "params[1].arguments.args: \"x\" is not an object of one type and its "
      "value");
  rule = Contain(Api("a.f"));
  rule["params"][1]["api_name"] = "a.f";
  EXPECT_EQ(ErrorOf(rule), "params[1].api_name: unknown key");
}

TEST(RuleForm, SaysWhatIsWrongInAPrecondition) {
  json rule = Contain(Api("a.f"));
  rule["precondition"] = "Failed";
  EXPECT_EQ(ErrorOf(rule), "precondition: not an object");
  rule["precondition"] = json::object();
  EXPECT_EQ(ErrorOf(rule), "precondition.parent_func_call_pre: missing");
  rule = Contain(Api("a.f"));
  rule["precondition"]["var"] = kAlways;
  EXPECT_EQ(ErrorOf(rule), "precondition.var: no group of APIContainRelation");
  const std::string place =
      "precondition.parent_func_call_pre.preconditions[0].clauses";
  EXPECT_EQ(ErrorOf(Contain(Api("a.f"), When("Sometimes"))),
            place + ": neither \"Unconditional\" nor a list");
  json clause = Constant("meta_vars.step", {1});
  clause.erase("values");
  EXPECT_EQ(ErrorOf(Contain(Api("a.f"), When({clause}))),
            place + "[0].values: missing");
  clause = Constant("meta_vars.step", {1});
  clause["type"] = "roughly";
  EXPECT_EQ(ErrorOf(Contain(Api("a.f"), When({clause}))),
            place +
                "[0].type: \"roughly\" is not a kind of clause that is known "
                "here");
}

TEST(RuleForm, NamesOfUserCodeAreNotTorchs) {
  EXPECT_TRUE(NamesTorchOnly(Contain(Api("torch.relu"))));
  EXPECT_FALSE(NamesTorchOnly(Contain(Api("__main__.f"))));
  EXPECT_FALSE(NamesTorchOnly(
      Contain(Api("torch.relu"), When({Constant("var_name", {"model.fc"})}))));
}

TEST(RuleWords, Preconditions) {
  const json stage = Constant("meta_vars.stage", {"training", "testing"});
  const std::string rule =
      "Every call of torch.optim.sgd.SGD.step calls torch.relu.";
  EXPECT_EQ(DescribeRule(Contain(Api("torch.relu"), When({stage}))),
            rule + " Holds where meta_vars.stage is training or testing.");
  EXPECT_EQ(
      DescribeRule(Contain(Api("torch.relu"), When({stage}, true))),
      rule + " Holds except where meta_vars.stage is training or testing.");
}

TEST(RuleWords, AreCutBetweenCharacters) {
  std::string name = "x";
  for (int i = 0; i < 60; ++i) name += "\u00e9";
  const std::string words = DescribeRule(
      Contain(Api("torch.relu"), When({Constant("meta_vars.stage", {name})})));
  EXPECT_NE(words.find(name.substr(0, 79) + "?"), std::string::npos) << words;
}

TEST(Translation, ContainIsOurs) {
  const Translation translation =
      TranslateRule(Contain(Api("torch._VariableFunctionsClass.equal")));
  ASSERT_EQ(translation.rules.size(), 1u);
  EXPECT_EQ(translation.rules[0].parameters,
            json::parse(R"({"window": {"kind": "call", "function":
                              {"name": "torch.optim.sgd.SGD.step"}},
                            "event": {"kind": "call", "binding": "any",
                              "function": {"name": "torch.equal"}}})"));
  EXPECT_TRUE(translation.rules[0].precondition.empty());
  EXPECT_EQ(translation.why_not, "");
}

TEST(Translation, StagesAreFacts) {
  const Translation translation = TranslateRule(
      Contain(Api("torch.relu"),
              When({Constant("meta_vars.stage", {"training", "testing"})})));
  ASSERT_EQ(translation.rules.size(), 2u);
  std::vector<std::string> stages;
  for (const NativeRule& rule : translation.rules) {
    EXPECT_TRUE(FindRelation("EventContain")->Parse(rule.parameters, "").ok());
    stages.push_back(rule.precondition.ToJson()["all"][0]["value"]);
  }
  EXPECT_EQ(stages, (std::vector<std::string>{"evaluation", "training"}));
}

TEST(Translation, WhatHasNoCounterpartSaysWhy) {
  const auto why = [](const json& rule) {
    const Translation translation = TranslateRule(rule);
    EXPECT_TRUE(translation.rules.empty()) << rule;
    return translation.why_not;
  };
  const std::string imported =
      "an imported APIContainRelation is not judged "
      "on runs of ours: ";
  EXPECT_EQ(why(Contain(Variable("data"))),
            imported + "its child is a variable");
  json child = Api("torch.relu");
  child["arguments"] = {{"args", {{"x", {{"int", 3}}}}}};
  EXPECT_EQ(why(Contain(child)), imported + "its child names arguments");
  const json step = Constant("meta_vars.step", {1});
  const json stage = Constant("meta_vars.stage", {"training"});
  const std::string no_fact =
      imported + "its precondition asks for what no fact of ours says";
  EXPECT_EQ(why(Contain(Api("a.f"), When({step}))), no_fact);
  EXPECT_EQ(why(Contain(Api("a.f"), When({stage, step}))), no_fact);
  EXPECT_EQ(
      why(Contain(Api("a.f"),
                  When({Constant("meta_vars.stage", {"checkpointing"})}))),
      no_fact);
  EXPECT_EQ(why(Contain(Api("a.f"), When({stage}, true))),
            imported + "its precondition is inverted");
  EXPECT_EQ(why(Rule("FunctionCoverRelation", {Api("a.f"), Api("a.g")},
                     "func_cover")),
            "an imported FunctionCoverRelation is not judged on runs of ours: "
            "no rule of ours means the same");
}

// null is "not checked" for arguments, as TrainCheck has it.
TEST(Translation, ArgumentsOfNullAreNotChecked) {
  json child = Api("torch.relu");
  child["arguments"] = nullptr;
  EXPECT_EQ(TranslateRule(Contain(child)).rules.size(), 1u);
}

TEST(Names, AreThoseOfTheAgent) {
  EXPECT_EQ(OurFunctionName("torch._C.TensorBase.add_"), "torch.Tensor.add_");
  EXPECT_EQ(OurFunctionName("torch._tensor.Tensor.backward"),
            "torch.Tensor.backward");
  EXPECT_EQ(OurFunctionName("__mp_main__.Net.forward"), "__main__.Net.forward");
  EXPECT_EQ(OurFunctionName("torch.nn.init.ones_"), "torch.nn.init.ones_");
  EXPECT_EQ(WithoutFieldPrefix("_ML_DAIKON_data_ID"), "data_ID");
  EXPECT_EQ(WithoutFieldPrefix("_TRAINCHECK_data_ID"), "data_ID");
  EXPECT_EQ(WithoutFieldPrefix("requires_grad"), "requires_grad");
}

}  // namespace
}  // namespace traincheck
