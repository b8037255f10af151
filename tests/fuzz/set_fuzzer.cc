// Sets of invariants as people import them: any text, and (because no fuzzer
// finds a hash) the same document with the ids that its content has.
#include <string>

#include "invariants/relations/registry.h"
#include "invariants/rules/invariant.h"
#include "invariants/rules/relation.h"
#include "invariants/sets/identity.h"
#include "invariants/sets/set_json.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {
namespace {

class IgnoreVerdicts : public RuleSink {
  void OnVerdict(const Verdict&) override {}
};

std::string Print(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// What was read can be described, judged by and read again.
void Use(const InvariantSet& set) {
  for (const Invariant& invariant : set.invariants) {
    const RulePtr& rule = invariant.rule;
    Require(!rule->Describe().empty());
    CaptureNeeds needs;
    rule->AddNeeds(&needs);
    const Relation* relation = FindRelation(rule->relation_name());
    Require(relation != nullptr);
    IgnoreVerdicts sink;
    Require(relation->NewEvaluator({{0, rule, invariant.precondition}},
                                   &sink) != nullptr);
  }
  const std::string text = Print(ToJson(set));
  const absl::StatusOr<InvariantSet> again = SetFromJsonUntrusted(text);
  Require(again.ok() && Print(ToJson(*again)) == text);
}

void Import(const std::string& text) {
  const absl::StatusOr<InvariantSet> set = SetFromJsonUntrusted(text);
  if (set.ok()) Use(*set);
}

// The id that the content would have once it is in canonical form.
void CorrectId(nlohmann::json* json) {
  if (!json->is_object()) return;
  const Relation* relation =
      FindRelation(json->value("relation", nlohmann::json()).is_string()
                       ? json->at("relation").get<std::string>()
                       : "");
  if (relation == nullptr) return;
  const auto rule =
      relation->Parse(json->value("parameters", nlohmann::json()), "");
  const auto precondition =
      Precondition::FromJson(json->value("precondition", nlohmann::json()), "");
  if (!rule.ok() || !precondition.ok()) return;
  Invariant content;
  content.rule = *rule;
  content.precondition = *precondition;
  (*json)["id"] = IdOf(content);
}

}  // namespace
}  // namespace traincheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = traincheck::FuzzInput(data, size).Rest();
  traincheck::Import(text);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("invariants")) return 0;
  for (nlohmann::json& invariant : json["invariants"]) {
    traincheck::CorrectId(&invariant);
  }
  traincheck::Import(traincheck::Print(json));
  return 0;
}
