#include "invariants/relations/consistent/consistent.h"

#include "base/json_reader.h"
#include "invariants/relations/consistent/consistent_groups.h"
#include "invariants/relations/consistent/consistent_inputs.h"
#include "invariants/relations/consistent/consistent_ranks.h"
#include "invariants/relations/consistent/consistent_rates.h"
#include "invariants/relations/consistent/consistent_returns.h"
#include "invariants/relations/consistent/consistent_updates.h"
#include "invariants/relations/consistent/consistent_variables.h"
#include "invariants/rules/relation_forms.h"

namespace traincheck {

namespace {

// Keys that one form alone has are looked at first: "given" and "group" stand
// beside the keys of the plain form.
const Relation* FormOf(const nlohmann::json& parameters) {
  // The Parse of the form that is found reports what does not fit, also where
  // no form does.
  if (Member(parameters, "across") != "ranks") return ConsistentVariables();
  if (parameters.contains("given")) return ConsistentUpdates();
  if (parameters.contains("group")) return ConsistentGroups();
  const nlohmann::json& of = Member(parameters, "of");
  if (of == "inputs") return ConsistentInputs();
  if (of == "optimizer.lr") return ConsistentRates();
  return of == "return" ? ConsistentReturns() : ConsistentRanks();
}

}  // namespace

const Relation* Consistent() {
  static const auto* const kRelation = new RelationForms(
      {ConsistentRanks(), ConsistentVariables(), ConsistentRates(),
       ConsistentReturns(), ConsistentInputs(), ConsistentUpdates(),
       ConsistentGroups()},
      FormOf);
  return kRelation;
}

}  // namespace traincheck
