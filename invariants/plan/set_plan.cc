#include "invariants/plan/set_plan.h"

#include "invariants/plan/capture_needs.h"
#include "invariants/precondition.h"
#include "invariants/relations/registry.h"

namespace traincheck {

namespace {

constexpr char kSpecial[] = "*?[";
// Of the frame around the rules, with room to spare.
constexpr size_t kFrameBytes = 64u << 10;

void AddFact(const Fact* fact, CaptureNeeds* needs) {
  if (fact == nullptr) return;
  switch (fact->state) {
    case FactState::kNone:
      break;
    case FactState::kAny:
      needs->State("parameter.data", "pre_step");
      break;
    case FactState::kGradients:
      needs->Gradients();
      break;
  }
}

void AddNeeds(const Invariant& invariant, CaptureNeeds* needs) {
  const Relation* relation = FindRelation(invariant.relation);
  if (relation == nullptr) return;
  relation->AddNeeds(invariant.parameters, needs);
  const auto precondition = Precondition::FromJson(invariant.precondition, "");
  if (!precondition.ok()) return;
  for (const Clause& clause : precondition->clauses()) {
    AddFact(clause.fact, needs);
    AddFact(clause.other, needs);
  }
}

// A rule's `function` is a pattern where it has one of these characters.
std::string Literal(const std::string& name) {
  std::string literal;
  for (char c : name) {
    const bool special = std::string(kSpecial).find(c) != std::string::npos;
    literal += special ? std::string("[") + c + "]" : std::string(1, c);
  }
  return literal;
}

nlohmann::json RuleOf(const std::string& function, const CallContent& content) {
  nlohmann::json rule = {{"function", Literal(function)}};
  if (content.all_arguments) {
    rule["arguments"] = "*";
  } else if (!content.arguments.empty()) {
    rule["arguments"] = content.arguments;
  }
  if (!content.texts.empty()) rule["texts"] = content.texts;
  if (!content.digests.empty()) rule["digests"] = content.digests;
  if (content.returns) rule["returns"] = true;
  if (content.autograd) rule["autograd"] = true;
  return rule;
}

}  // namespace

nlohmann::json PlanOf(const std::vector<Invariant>& invariants) {
  CaptureNeeds needs;
  for (const Invariant& invariant : invariants) AddNeeds(invariant, &needs);
  nlohmann::json calls = nlohmann::json::array();
  // First, because the last rule that fits a function holds.
  const nlohmann::json all = {{"function", "*"}};
  if (needs.all_calls()) calls.push_back(all);
  size_t bytes = kFrameBytes;
  for (const auto& [function, content] : needs.calls()) {
    calls.push_back(RuleOf(function, content));
    bytes += calls.back().dump().size() + 1;
  }
  if (bytes > kMaxCapturePlanBytes) calls = nlohmann::json::array({all});
  return {{"format", 1},
          {"mode", "selective"},
          {"calls", std::move(calls)},
          {"state", needs.state()}};
}

}  // namespace traincheck
