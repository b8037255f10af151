#include "invariants/sets/set_plan.h"

#include <string_view>
#include <utility>

#include "invariants/rules/capture_needs.h"
#include "invariants/rules/rule_needs.h"

namespace traincheck {

namespace {

constexpr char kSpecial[] = "*?[";
// The frame around the rules takes less than this.
constexpr size_t kFrameBytes = 64u << 10;

// A rule's `function` is a pattern where it has one of these characters. A name
// such as f[int] would otherwise fit other functions, and not its own.
std::string Literal(const std::string& name) {
  std::string literal;
  for (char c : name) {
    const bool special = std::string(kSpecial).find(c) != std::string::npos;
    literal += special ? std::string("[") + c + "]" : std::string(1, c);
  }
  return literal;
}

bool IsEmpty(const PlannedCall& content) {
  return !content.all_arguments && content.arguments.empty() &&
         content.texts.empty() && content.digests.empty() && !content.returns &&
         !content.autograd;
}

void Join(const PlannedCall& other, PlannedCall* content) {
  content->all_arguments |= other.all_arguments;
  content->arguments.insert(other.arguments.begin(), other.arguments.end());
  content->texts.insert(other.texts.begin(), other.texts.end());
  content->digests.insert(other.digests.begin(), other.digests.end());
  content->returns |= other.returns;
  content->autograd |= other.autograd;
}

// "forward" of "torch.nn.modules.module.Module.forward".
std::string_view Method(std::string_view function) {
  return function.substr(function.rfind('.') + 1);
}

bool IsWord(std::string_view function) {
  return function.find('.') == std::string_view::npos;
}

// Two rules of a plan may fit one function, by its name and by a role; the
// agent then takes the later one. So rules that ask for nothing besides the
// call come first. The rules behind them each ask for what any rule needs that
// may fit the same function: a role is the same method of another class, or a
// word.
std::vector<std::pair<std::string, PlannedCall>> Ordered(
    const std::map<std::string, PlannedCall>& calls) {
  std::vector<std::pair<std::string, PlannedCall>> ordered;
  // The keys point into `calls`.
  std::map<std::string_view, PlannedCall> by_method;
  PlannedCall of_words;
  PlannedCall of_all;
  for (const auto& [function, content] : calls) {
    if (IsEmpty(content)) ordered.emplace_back(function, content);
    Join(content, &by_method[Method(function)]);
    Join(content, &of_all);
    if (IsWord(function)) Join(content, &of_words);
  }
  for (const auto& [function, content] : calls) {
    if (IsEmpty(content)) continue;
    // A word may be shared by functions of any name; a name or a role only by
    // methods of its own name, and by words.
    PlannedCall joined = IsWord(function) ? of_all : of_words;
    Join(by_method[Method(function)], &joined);
    ordered.emplace_back(function, std::move(joined));
  }
  return ordered;
}

nlohmann::json RuleOf(const std::string& function, const PlannedCall& content) {
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
  for (const Invariant& invariant : invariants) {
    AddNeeds(*invariant.rule, invariant.precondition, &needs);
  }
  nlohmann::json calls = nlohmann::json::array();
  // First, because the last rule that fits a function holds.
  const nlohmann::json all = {{"function", "*"}};
  if (needs.all_calls()) calls.push_back(all);
  size_t bytes = kFrameBytes;
  for (const auto& [function, content] : Ordered(needs.calls())) {
    calls.push_back(RuleOf(function, content));
    bytes += calls.back().dump().size() + 1;
  }
  // A plan that no process takes would record nothing. Under this one rules on
  // calls are decided, and those on what calls are given are unknown.
  if (bytes > kMaxCapturePlanBytes) calls = nlohmann::json::array({all});
  nlohmann::json plan = {{"format", 1},
                         {"mode", "selective"},
                         {"calls", std::move(calls)},
                         {"state", needs.state()}};
  if (!needs.statistics().empty()) plan["statistics"] = needs.statistics();
  if (!needs.rows().empty()) plan["rows"] = needs.rows();
  if (needs.generators()) plan["generators"] = true;
  return plan;
}

}  // namespace traincheck
