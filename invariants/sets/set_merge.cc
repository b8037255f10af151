#include "invariants/sets/set_merge.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace traincheck {

namespace {

using Names = std::vector<std::string>;

// Each name once and in order, whatever the order of the sets.
void Join(const Names& more, Names* names) {
  std::set<std::string> all(names->begin(), names->end());
  all.insert(more.begin(), more.end());
  names->assign(all.begin(), all.end());
}

// Whoever wrote the file may have put anything into an origin.
bool IsMerged(const nlohmann::json& origin) {
  const auto format = origin.find("format");
  const auto of = origin.find("of");
  return format != origin.end() && *format == "merged" && of != origin.end() &&
         of->is_array();
}

bool Holds(const nlohmann::json& parts, const nlohmann::json& part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

bool HoldsAll(const nlohmann::json& parts, const nlohmann::json& others) {
  return std::all_of(
      others.begin(), others.end(),
      [&](const nlohmann::json& part) { return Holds(parts, part); });
}

// Origins that differ, one after the other, each once. True: each of the two
// may be of windows that the other does not count.
bool JoinOrigin(const nlohmann::json& more, nlohmann::json* origin) {
  if (more.is_null()) return true;
  if (origin->is_null()) {
    *origin = more;
    return true;
  }
  // The same origin comes with each set that was taken from one document.
  if (more == *origin) return false;
  // Parts stand side by side: sets that are merged again and again would nest
  // deeper than a document may. One with a grade beside its parts (MakeAdvice)
  // stays whole: the grade is about all of them.
  const bool is_list = IsMerged(more) && more.size() == 2;
  const nlohmann::json parts =
      is_list ? more["of"] : nlohmann::json::array({more});
  const nlohmann::json before =
      IsMerged(*origin) ? (*origin)["of"] : nlohmann::json::array({*origin});
  if (HoldsAll(before, parts)) return false;
  if (!IsMerged(*origin)) *origin = {{"format", "merged"}, {"of", before}};
  nlohmann::json& of = (*origin)["of"];
  for (const nlohmann::json& part : parts) {
    if (!Holds(of, part)) of.push_back(part);
  }
  return !HoldsAll(parts, before);
}

void JoinRule(const Invariant& more, Invariant* rule) {
  if (more.scope == Scope::kGeneral) rule->scope = Scope::kGeneral;
  Join(more.experiments, &rule->experiments);
  // The windows of a part count once. Those of a part that two merged rules
  // share count twice if each has others besides: no part has a number of its
  // own.
  rule->support = JoinOrigin(more.origin, &rule->origin)
                      ? rule->support + more.support
                      : std::max(rule->support, more.support);
}

// A merged rule is built in if one of its parts is.
bool IsBuiltIn(const nlohmann::json& origin) {
  const auto format = origin.find("format");
  if (format != origin.end() && *format == "builtin") return true;
  return IsMerged(origin) &&
         std::any_of(origin["of"].begin(), origin["of"].end(), IsBuiltIn);
}

// What a rule says, whatever its condition.
std::string ContentOf(const Invariant& rule) {
  return nlohmann::json{rule.rule->relation_name(), rule.rule->parameters()}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

InvariantSet MergeSets(const std::vector<InvariantSet>& sets) {
  InvariantSet merged;
  std::map<std::string, Invariant> rules;  // by id
  for (const InvariantSet& set : sets) {
    Join(set.runs, &merged.runs);
    for (const Invariant& invariant : set.invariants) {
      const auto [found, added] = rules.emplace(invariant.id, invariant);
      if (!added) JoinRule(invariant, &found->second);
    }
  }
  // By id, which does not depend on the order of the sets.
  for (auto& [id, rule] : rules) merged.invariants.push_back(std::move(rule));
  return merged;
}

void LeaveOutDoubles(InvariantSet* set) {
  std::set<std::string> built_in;
  for (const Invariant& rule : set->invariants) {
    if (IsBuiltIn(rule.origin)) built_in.insert(ContentOf(rule));
  }
  // Not by id, because ids contain the condition.
  const auto is_double = [&](const Invariant& rule) {
    return !IsBuiltIn(rule.origin) && built_in.count(ContentOf(rule)) > 0;
  };
  std::vector<Invariant>& rules = set->invariants;
  rules.erase(std::remove_if(rules.begin(), rules.end(), is_double),
              rules.end());
}

}  // namespace traincheck
