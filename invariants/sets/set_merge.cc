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

// Origins that differ, one after the other.
void JoinOrigin(const nlohmann::json& more, nlohmann::json* origin) {
  // The same origin comes with each set that was taken from one document.
  if (more.is_null() || more == *origin) return;
  if (origin->is_null()) {
    *origin = more;
    return;
  }
  if (!IsMerged(*origin)) {
    *origin = {{"format", "merged"}, {"of", nlohmann::json::array({*origin})}};
  }
  nlohmann::json& of = (*origin)["of"];
  // One with a grade beside its parts (MakeAdvice) stays whole: the grade is
  // about all of them.
  if (IsMerged(more) && more.size() == 2) {
    // Side by side, too: sets that are merged again and again would nest deeper
    // than a document may.
    of.insert(of.end(), more["of"].begin(), more["of"].end());
  } else {
    of.push_back(more);
  }
}

void JoinRule(const Invariant& more, Invariant* rule) {
  if (more.scope == Scope::kGeneral) rule->scope = Scope::kGeneral;
  Join(more.experiments, &rule->experiments);
  rule->support += more.support;
  JoinOrigin(more.origin, &rule->origin);
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
