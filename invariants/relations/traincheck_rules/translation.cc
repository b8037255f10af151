#include "invariants/relations/traincheck_rules/translation.h"

#include <optional>
#include <set>

#include "invariants/relations/traincheck_rules/names.h"

namespace traincheck {

namespace {

using nlohmann::json;

// Names nothing of the single rule: a summary counts equal reasons
// (Translation::why_not).
Translation NotJudged(const std::string& what, const std::string& why) {
  return {{}, "an imported " + what + " is not judged on runs of ours: " + why};
}

struct Stage {
  const char* theirs;
  const char* ours;
};

// What the fact call.stage can say. TrainCheck's other stages (checkpointing,
// preprocessing, ...) are no property of a call here.
constexpr Stage kStages[] = {
    {"init", "init"},
    {"training", "training"},
    {"evaluation", "evaluation"},
    {"testing", "evaluation"},
};

// Our names of these stages; none: one of them has no counterpart.
std::set<std::string> OurStages(const json& values) {
  std::set<std::string> stages;
  for (const json& value : values) {
    bool known = false;
    for (const Stage& stage : kStages) {
      if (value != stage.theirs) continue;
      stages.insert(stage.ours);
      known = true;
    }
    // Without this stage the native rules would ask for less than the imported
    // one.
    if (!known) return {};
  }
  return stages;
}

// The preconditions, one of which must hold: none where the group has no
// native form. `why` is set then.
std::vector<Precondition> Preconditions(const json& group, std::string* why) {
  const json& alternatives = group.at("preconditions");
  // A condition that must not hold has no form in a Precondition.
  if (group.at("inverted").get<bool>()) {
    *why = "its precondition is inverted";
    return {};
  }
  if (alternatives.empty()) {
    *why = "its precondition never holds";
    return {};
  }
  // Each stage once: their windows must not overlap.
  std::set<std::string> stages;
  for (const json& alternative : alternatives) {
    const json& clauses = alternative.at("clauses");
    // One alternative that always holds makes the others needless.
    if (!clauses.is_array() || clauses.empty()) return {Precondition()};
    const bool of_stage = clauses.size() == 1 &&
                          clauses[0].at("type") == "constant" &&
                          clauses[0].at("prop_name") == "meta_vars.stage";
    const std::set<std::string> ours =
        of_stage ? OurStages(clauses[0].at("values")) : std::set<std::string>();
    if (ours.empty()) {
      *why = "its precondition asks for what no fact of ours says";
      return {};
    }
    stages.insert(ours.begin(), ours.end());
  }
  std::vector<Precondition> preconditions;
  for (const std::string& stage : stages) {
    const Clause of_stage{ClauseKind::kConstant, FindFact("call.stage"),
                          nullptr, stage};
    preconditions.push_back(Precondition(ClauseList{of_stage}));
  }
  return preconditions;
}

json FunctionOf(const json& param) {
  return {
      {"name", OurFunctionName(
                   param.at("api_full_name").get_ref<const std::string&>())}};
}

// Is anything but the name asked for? What a call raised is no part of a
// window here.
std::optional<std::string> BeyondName(const json& child) {
  if (!child.contains("api_full_name")) return "its child is a variable";
  if (child.contains("arguments") && !child.at("arguments").is_null()) {
    return "its child names arguments";
  }
  if (child.contains("exception") && !child.at("exception").is_null()) {
    return "its child raises";
  }
  return std::nullopt;
}

// During each call of the parent the child is called, at any depth.
Translation Contain(const json& rule) {
  const char* const name = "APIContainRelation";
  const json& params = rule.at("params");
  const json& precondition = rule.at("precondition");
  if (const auto beyond = BeyondName(params[1]))
    return NotJudged(name, *beyond);
  if (precondition.contains("var_events")) {
    return NotJudged(name, "it has a condition on variables");
  }
  Translation translation;
  std::string why;
  for (Precondition& one :
       Preconditions(precondition.at("parent_func_call_pre"), &why)) {
    json parameters = {
        {"window", {{"kind", "call"}, {"function", FunctionOf(params[0])}}},
        {"event",
         {{"kind", "call"},
          {"function", FunctionOf(params[1])},
          {"binding", "any"}}}};
    translation.rules.push_back({std::move(parameters), std::move(one)});
  }
  if (translation.rules.empty()) return NotJudged(name, why);
  return translation;
}

struct Row {
  const char* relation;
  Translation (*translate)(const json& rule);
};

// A relation that is not in the table is imported, shown and never judged.
constexpr Row kTable[] = {
    {"APIContainRelation", Contain},
};

}  // namespace

Translation TranslateRule(const json& rule) {
  const std::string relation = rule.at("relation").get<std::string>();
  for (const Row& row : kTable) {
    if (relation == row.relation) return row.translate(rule);
  }
  return NotJudged(relation, "no rule of ours means the same");
}

}  // namespace traincheck
