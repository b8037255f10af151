// An invariant and a set of them, as they are stored, exchanged
// (invariants/sets/set_json.h, docs/invariant-json.md) and shown.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_INVARIANT_H_
#define TRAINCHECK_INVARIANTS_RULES_INVARIANT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "invariants/rules/precondition.h"
#include "invariants/rules/rule.h"
#include "nlohmann/json.hpp"

namespace traincheck {

struct Invariant {
  // Hash (16 hex digits) of relation, parameters and precondition in
  // canonical JSON; the same rule has the same id in every set.
  std::string id;
  RulePtr rule;  // never null in a set
  Precondition precondition;
  Scope scope = Scope::kExperiment;
  std::vector<std::string> experiments;  // learned from, sorted
  uint64_t support = 0;                  // windows that showed it
  // Plain English, always made from the rule, one printable line.
  std::string text;
  // Where an imported rule stood, and what its file says besides its content
  // (docs/traincheck-files.md). Null: not imported. No part of the id.
  nlohmann::json origin;
};

struct InvariantSet {
  std::string name;
  uint32_t version = 1;
  std::vector<std::string> runs;  // learned from, sorted
  uint64_t created_unix_ns = 0;
  std::vector<Invariant> invariants;  // sorted by id
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_INVARIANT_H_
