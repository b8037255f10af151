#include "ctl/preflight/families.h"

#include "invariants/library/library.h"

namespace traincheck::ctl {

std::map<std::string, std::string> FamiliesOfRules() {
  std::map<std::string, std::string> by_rule;
  const auto families = BuiltInFamilies();
  // The report then names relations instead (FamilyOf).
  if (!families.ok()) return by_rule;
  for (const InvariantSet& family : *families) {
    // "core" of "builtin.core".
    const std::string name = family.name.substr(family.name.find('.') + 1);
    for (const Invariant& rule : family.invariants) by_rule[rule.id] = name;
  }
  return by_rule;
}

}  // namespace traincheck::ctl
