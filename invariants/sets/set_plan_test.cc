#include "invariants/sets/set_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "invariants/relations/registry.h"
#include "invariants/sets/invariant_for_testing.h"

namespace traincheck {
namespace {

using nlohmann::json;

constexpr char kStep[] = "torch.optim.optimizer.Optimizer.step";

const json kAlways = {{"all", json::array()}};

json Span(json event) {
  return {{"window", {{"kind", "span"}, {"function", {{"role", kStep}}}}},
          {"event", std::move(event)}};
}
json Window(json function, json event) {
  return {{"window", {{"kind", "call"}, {"function", std::move(function)}}},
          {"event", std::move(event)}};
}
json CallOf(json function) {
  return {
      {"kind", "call"}, {"function", std::move(function)}, {"binding", "any"}};
}
json State(const char* of, const char* is) {
  return {{"kind", "state"}, {"of", of}, {"is", is}, {"which", "some"}};
}

Invariant AcrossRanks(json consistent) {
  consistent["across"] = "ranks";
  return NewInvariant("Consistent", consistent);
}

std::set<std::string> Functions(const json& plan) {
  std::set<std::string> functions;
  for (const json& rule : plan.at("calls")) functions.insert(rule["function"]);
  return functions;
}

const std::set<std::string> kGradientPoints = {
    "backward_end", "grad_clear", "post_clip", "pre_clip", "pre_step"};

// Each form of rule of each relation, and what its plan must hold.
struct Form {
  Invariant rule;
  std::set<std::string> functions;
  PlannedState state;
};

std::vector<Form> ArgumentForms() {
  return {
      {NewInvariant("APIArg", {{"is", "constant"},
                               {"function", {{"name", "my.drop"}}},
                               {"argument", "p"},
                               {"value", 0.0}}),
       {"my.drop"},
       {}},
      {NewInvariant("APIArg", {{"is", "distinct"},
                               {"function", {{"name", "my.normal_"}}},
                               {"argument", "tensor"},
                               {"within", {{"name", "my.apply"}}}}),
       {"my.normal_", "my.apply"},
       {}},
      {NewInvariant("APIArg", {{"is", "equal"},
                               {"across", "ranks"},
                               {"function", {{"name", "my.set_epoch"}}},
                               {"argument", "epoch"}}),
       {"my.set_epoch"},
       {}},
      {NewInvariant("APIArg", {{"is", "distinct"},
                               {"across", "workers"},
                               {"argument", "generator.numpy"}}),
       {},
       {}},
  };
}

std::vector<Form> OrderForms() {
  return {
      {NewInvariant(
           "APISequence",
           {{"window", "step"},
            {"functions", {{{"category", "backward"}}, {{"name", "my.f"}}}}}),
       {"my.f"},
       {}},
      {NewInvariant("CallCount", {{"function", {{"name", "my.f"}}},
                                  {"counts", {1}},
                                  {"per", {{"call", {{"name", "my.g"}}}}}}),
       {"my.f", "my.g"},
       {}},
      {NewInvariant("DeclaredTotal",
                    {{"function", {{"name", "my.f"}}}, {"argument", "total"}}),
       {"my.f"},
       {}},
      {NewInvariant("OptimizerProgress", {{"backwards", 16}}),
       {},
       {{"parameter.grad", kGradientPoints}}},
      {NewInvariant("APIOutput", {{"is", "at_most"},
                                  {"function", {{"name", "my.generate"}}},
                                  {"dimension", 1},
                                  {"over", "ids"},
                                  {"bound", "most"}}),
       {"my.generate"},
       {}},
      {AcrossRanks({{"of", "return"}, {"function", {{"name", "my.clip"}}}}),
       {"my.clip"},
       {}},
      {AcrossRanks({{"of", "inputs"}, {"is", "distinct"}}), {}, {}},
      {AcrossRanks({{"of", "optimizer.lr"}, {"point", "pre_step"}}), {}, {}},
      {AcrossRanks({{"of", "parameter.data"},
                    {"point", "post_step"},
                    {"given", "equal gradients"}}),
       {},
       {{"parameter.data", {"post_step", "pre_step"}},
        {"parameter.grad", kGradientPoints}}},
  };
}

// Of an imported rule what its native counterpart reads.
std::vector<Form> ImportedForms() {
  const auto contain = [](json child) {
    return NewInvariant(
        "TrainCheck",
        {{"relation", "APIContainRelation"},
         {"params",
          {{{"param_type", "APIParam"}, {"api_full_name", "my.f"}},
           std::move(child)}},
         {"precondition",
          {{"parent_func_call_pre",
            {{"inverted", false},
             {"preconditions", {{{"clauses", "Unconditional"}}}}}}}}});
  };
  return {{contain({{"param_type", "APIParam"}, {"api_full_name", "my.g"}}),
           {"my.f", "my.g"},
           {}},
          {contain({{"param_type", "VarTypeParam"},
                    {"var_type", "torch.nn.Parameter"},
                    {"attr_name", "data"}}),
           {},
           {}}};
}

std::vector<Form> ChangeForms() {
  return {
      {NewInvariant("StateChange", {{"of", "parameter.data"},
                                    {"role", "frozen"},
                                    {"changes", "never"}}),
       {},
       {{"parameter.data", {"step_end"}}}},
      {NewInvariant("StateChange", {{"of", "buffer.data"},
                                    {"role", "my.Norm.mean"},
                                    {"changes", "every"},
                                    {"steps", 1},
                                    {"after", "first_forward"}}),
       {},
       {{"buffer.data",
         {"construction", "forward_begin", "load", "step_end"}}}},
      {NewInvariant("APIOutput", {{"is", "equal"},
                                  {"function", {{"name", "my.linear"}}},
                                  {"output", "dtype"},
                                  {"to", {{"context", "autocast_dtype"}}}}),
       {"my.linear"},
       {}},
      {NewInvariant("APIOutput", {{"is", "equal"},
                                  {"function", {{"name", "my.collate"}}},
                                  {"output", "size(0)"},
                                  {"to", {{"argument", "samples"}}}}),
       {"my.collate"},
       {}},
  };
}

std::vector<Form> SavedForms() {
  const PlannedState data = {{"buffer.data", {"save"}},
                             {"parameter.data", {"save"}}};
  const auto form = [](const char* what, const PlannedState& state) {
    return Form{NewInvariant("SavedEqualsLive", {{"what", what}}), {}, state};
  };
  return {form("content", data), form("keys", data), form("still", {}),
          form("moment", {{"parameter.data", {"save"}}}), form("resumed", {})};
}

std::vector<Form> StateForms() {
  const PlannedState gradients = {{"parameter.grad", kGradientPoints}};
  PlannedState update = gradients;
  update["parameter.data"] = {"pre_step", "post_step"};
  return {
      {AcrossRanks({{"of", "buffer.data"}, {"point", "forward_begin"}}),
       {},
       {{"buffer.data", {"forward_begin"}}}},
      {AcrossRanks({{"of", "parameter.grad"}, {"point", "pre_step"}}),
       {},
       gradients},
      {NewInvariant(
           "ReproducedSteps",
           {{"start",
             {{"host", "h"},
              {"generators", {{"generator.torch", "0000000000000001"}}}}},
            {"steps",
             {{"0000000000000001", "0000000000000002", "0000000000000003",
               "0000000000000004"}}}}),
       {},
       {{"parameter.data", {"pre_step"}}, {"parameter.grad", {"pre_step"}}}},
      {NewInvariant("Consistent", {{"across", "variables"},
                                   {"of", "parameter.data"},
                                   {"point", "post_step"},
                                   {"a", "Net.a"},
                                   {"b", "Net.b"}}),
       {},
       {{"parameter.data", {"post_step"}}}},
      {AcrossRanks({{"of", "optimizer_state.data"}, {"point", "post_step"}}),
       {},
       {{"optimizer_state.data", {"post_step"}}}},
      {NewInvariant("EventContain", Window({{"name", "my.Net.forward"}},
                                           CallOf({{"role", "dropout"}}))),
       {"my.Net.forward", "dropout"},
       {}},
      {NewInvariant("EventContain", Span(CallOf({{"category", "zero_grad"}}))),
       {kStep},
       gradients},
      {NewInvariant("EventContain", Span(CallOf({{"category", "backward"}}))),
       {kStep},
       {{"parameter.data", {"pre_step", "post_step"}}}},
      {NewInvariant("EventContain", Span(State("parameter.grad", "nonzero"))),
       {kStep},
       gradients},
      {NewInvariant("EventContain", Window({{"role", kStep}},
                                           State("parameter.data", "changed"))),
       {kStep},
       update},
      {NewInvariant("EventContain",
                    Window({{"role", kStep}}, State("parameter", "trainable"))),
       {kStep},
       gradients},
      {NewInvariant("EventContain", Window({{"category", "backward"}},
                                           State("parameter.grad", "changed"))),
       {},
       gradients},
  };
}

// Collectives by name: their category is not always recorded.
TEST(SetPlan, CollectivesAreNamed) {
  const json plan =
      PlanOf({NewInvariant("CollectiveContract", {{"what", "tensors"}})});
  const std::set<std::string> functions = Functions(plan);
  EXPECT_EQ(functions.count("torch.distributed.distributed_c10d.all_reduce"),
            1u);
  EXPECT_EQ(functions.count("torch.distributed.distributed_c10d.barrier"), 1u);
  EXPECT_EQ(functions.count("*"), 0u);
  for (const json& rule : plan.at("calls")) {
    if (rule["function"] != "torch.distributed.distributed_c10d.broadcast") {
      continue;
    }
    EXPECT_EQ(rule.at("arguments"),
              json({"input_split_sizes", "output_split_sizes", "tensor"}));
  }
}

// Rules that ask for a value of a fact, and what it needs.
Invariant OfCalls(const char* fact, json function, json value) {
  return NewInvariant("APIArg", {{"is", "fact"},
                                 {"function", std::move(function)},
                                 {"fact", fact},
                                 {"value", std::move(value)}});
}
Invariant OfSteps(const char* of, const char* fact, bool value) {
  return NewInvariant("EventContain",
                      Window({{"role", kStep}}, {{"kind", "state"},
                                                 {"of", of},
                                                 {"fact", fact},
                                                 {"value", value},
                                                 {"which", "every"}}));
}

std::vector<Form> FactForms() {
  const std::string scaler = "torch.amp.grad_scaler.GradScaler.";
  PlannedState rows = {{"parameter.data", {"pre_step", "post_step"}},
                       {"parameter.grad", {"pre_step"}}};
  return {
      {OfCalls("call.inside_wrapper", {{"category", "forward"}}, true), {}, {}},
      {OfCalls("call.effective_dropout_p", {{"role", "dropout"}}, 0.0),
       {"dropout"},
       {}},
      {OfCalls("call.shapes_match", {{"role", "loss"}}, true), {"loss"}, {}},
      {OfCalls("grad.scaled", {{"category", "optimizer_step"}}, false),
       {scaler + "scale", scaler + "unscale_", scaler + "step"},
       {{"parameter.grad", kGradientPoints}}},
      {OfCalls("sampler.shuffles", {{"category", "loader_next"}}, true),
       {},
       {}},
      {OfSteps("parameter", "grad.finite", true),
       {kStep},
       {{"parameter.grad", {"pre_step"}}}},
      {OfSteps("parameter", "rows_changed_without_grad", false), {kStep}, rows},
      {OfSteps("parameter", "loaded.consumed", true),
       {kStep},
       {{"parameter.data", {"load", "pre_step"}}}},
      {OfSteps("buffer", "buffer.updated_or_loaded", true),
       {kStep},
       {{"buffer.data",
         {"construction", "forward_begin", "load", "step_end"}}}},
  };
}

TEST(SetPlan, FactsThatNeedMoreThanState) {
  const PlannedState at_step = {{"parameter.grad", {"pre_step"}}};
  const json finite = PlanOf({OfSteps("parameter", "grad.finite", true)});
  EXPECT_EQ(finite.at("statistics").get<PlannedState>(), at_step);
  EXPECT_FALSE(finite.contains("rows"));
  const json rows =
      PlanOf({OfSteps("parameter", "rows_changed_without_grad", false)});
  EXPECT_EQ(rows.at("rows").at("parameter.grad"), json({"pre_step"}));
  EXPECT_EQ(rows["rows"]["parameter.data"], json({"post_step", "pre_step"}));
  const json draws =
      PlanOf({OfCalls("call.rng_advanced", {{"category", "forward"}}, false)});
  EXPECT_EQ(draws.at("generators"), true);
  for (const json& plan : {finite, rows, draws}) {
    const auto read = PlanFromJsonUntrusted(PlanText(plan, 1));
    EXPECT_TRUE(read.ok()) << read.status();
  }
}

TEST(SetPlan, PartsOfAllToAllAreTold) {
  const json plan =
      PlanOf({NewInvariant("CollectiveContract", {{"what", "splits"}})});
  const std::string module = "torch.distributed.distributed_c10d.";
  EXPECT_EQ(Functions(plan),
            (std::set<std::string>{module + "all_to_all",
                                   module + "all_to_all_single"}));
}

std::vector<Form> Forms() {
  std::vector<Form> forms = ArgumentForms();
  for (auto more : {OrderForms, ChangeForms, StateForms, SavedForms, FactForms,
                    ImportedForms}) {
    for (Form& form : more()) forms.push_back(std::move(form));
  }
  return forms;
}

TEST(SetPlan, EachFormOfRuleGetsWhatItReads) {
  std::set<std::string> relations = {"CollectiveContract", "CallReturns",
                                     "RateSchedule"};  // needs nothing
  for (const Form& form : Forms()) {
    relations.insert(form.rule.rule->relation_name());
    const json plan = PlanOf({form.rule});
    EXPECT_EQ(Functions(plan), form.functions) << form.rule.rule->parameters();
    EXPECT_EQ(plan.at("state").get<PlannedState>(), form.state)
        << form.rule.rule->parameters();
    EXPECT_TRUE(PlanFromJsonUntrusted(PlanText(plan, 1)).ok());
  }
  for (const Relation* relation : Relations()) {
    EXPECT_EQ(relations.count(relation->name()), 1u)
        << relation->name() << " has no form in this test";
  }
}

TEST(SetPlan, TellsOfCallsWhatRulesRead) {
  const json function = {{"name", "my.f"}};
  const auto argument = [&](const char* name, const json& value) {
    return NewInvariant("APIArg", {{"is", "constant"},
                                   {"function", function},
                                   {"argument", name},
                                   {"value", value}});
  };
  const json rows = {{"is", "equal"},
                     {"function", function},
                     {"output", "size(0)"},
                     {"to", {{"argument", "x"}}}};
  const json plan = PlanOf({argument("p", 0.5), argument("mode", "sum"),
                            NewInvariant("APIOutput", rows)});
  EXPECT_EQ(plan.at("calls"), json::array({{{"function", "my.f"},
                                            {"arguments", {"mode", "p", "x"}},
                                            {"texts", {"mode"}},
                                            {"returns", true}}}));
}

// The agent takes the last rule that fits a function by its name or a role.
TEST(SetPlan, ARoleTakesNothingAwayFromAName) {
  const auto output = [](const char* level, const char* function) {
    return NewInvariant("APIOutput", {{"is", "equal"},
                                      {"function", {{level, function}}},
                                      {"output", "dtype"},
                                      {"to", {{"context", "autocast_dtype"}}}});
  };
  const Invariant argument =
      NewInvariant("APIArg", {{"is", "constant"},
                              {"function", {{"role", "z.B.run"}}},
                              {"argument", "p"},
                              {"value", 1}});
  const Invariant call = NewInvariant(
      "EventContain", Window({{"role", "z.A.run"}}, CallOf({{"name", "g"}})));
  const json plan = PlanOf({output("name", "a.C.run"), argument, call});
  const json& rules = plan.at("calls");
  ASSERT_EQ(rules.size(), 4u);
  EXPECT_EQ(rules[0], json({{"function", "g"}}));
  EXPECT_EQ(rules[1], json({{"function", "z.A.run"}}));
  for (const size_t i : {2, 3}) {
    EXPECT_EQ(rules[i].at("arguments"), json({"p"})) << rules[i];
    EXPECT_EQ(rules[i].at("returns"), true) << rules[i];
  }
}

TEST(SetPlan, IsTheUnionOverItsRules) {
  std::vector<Invariant> rules;
  std::set<std::string> functions;
  PlannedState state;
  for (const Form& form : Forms()) {
    rules.push_back(form.rule);
    functions.insert(form.functions.begin(), form.functions.end());
    for (const auto& [value, points] : form.state) {
      state[value].insert(points.begin(), points.end());
    }
  }
  const json plan = PlanOf(rules);
  EXPECT_EQ(Functions(plan), functions);
  EXPECT_EQ(plan.at("state").get<PlannedState>(), state);
}

TEST(SetPlan, PreconditionsAreReadToo) {
  const json shared = {{"kind", "state"},
                       {"of", "parameter"},
                       {"fact", "var.shared_memory"},
                       {"value", true},
                       {"which", "every"}};
  const json trainable = {{"all",
                           {{{"clause", "constant"},
                             {"fact", "var.role"},
                             {"value", "trainable"}}}}};
  const auto state = [&](const json& precondition) {
    return PlanOf(
               {NewInvariant("EventContain", Window({{"role", kStep}}, shared),
                             precondition)})
        .at("state");
  };
  EXPECT_EQ(state(nullptr), json::object());
  EXPECT_EQ(state(trainable).get<PlannedState>(),
            (PlannedState{{"parameter.data", {"pre_step"}}}));
}

TEST(SetPlan, ASetWithoutRulesNeedsNothing) {
  const json plan = PlanOf({});
  EXPECT_EQ(plan.at("mode"), "selective");
  EXPECT_TRUE(plan.at("calls").empty());
  EXPECT_EQ(plan.at("state"), json::object());
}

TEST(SetPlan, ACategoryThatPlansSwitchOffNeedsAllCalls) {
  const auto functions = [](const char* category) {
    return Functions(PlanOf({NewInvariant(
        "EventContain",
        Window({{"name", "f"}}, CallOf({{"category", category}})))}));
  };
  EXPECT_EQ(functions("loader_next"), (std::set<std::string>{"f"}));
  EXPECT_EQ(functions("operation"), (std::set<std::string>{"*", "f"}));
}

TEST(SetPlan, NamesAreNoPatterns) {
  const Invariant rule = NewInvariant(
      "EventContain",
      Window({{"name", "f[int]"}}, CallOf({{"category", "backward"}})));
  EXPECT_EQ(Functions(PlanOf({rule})), (std::set<std::string>{"f[[]int]"}));
}

TEST(SetPlan, WhereNamesAreTooManyItAsksForAll) {
  std::vector<Invariant> rules;
  for (int i = 0; i < 300; ++i) {
    const std::string name = std::to_string(i) + std::string(8000, 'x');
    rules.push_back(NewInvariant(
        "EventContain",
        Window({{"name", name}}, CallOf({{"category", "backward"}}))));
  }
  const json plan = PlanOf(rules);
  EXPECT_EQ(Functions(plan), (std::set<std::string>{"*"}));
  EXPECT_LT(PlanText(plan, 1).size(), kMaxCapturePlanBytes);
}

}  // namespace
}  // namespace traincheck
