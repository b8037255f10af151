#include "invariants/relations/consistent/consistent.h"

#include "invariants/relations/consistent/consistent_ranks.h"
#include "invariants/relations/consistent/consistent_rates.h"
#include "invariants/relations/consistent/consistent_returns.h"
#include "invariants/relations/consistent/consistent_variables.h"
#include "invariants/rules/relation_forms.h"

namespace traincheck {

namespace {

const Relation* FormOf(const nlohmann::json& parameters) {
  if (!parameters.is_object() ||
      parameters.value("across", nlohmann::json()) != "ranks") {
    return ConsistentVariables();
  }
  const nlohmann::json of = parameters.value("of", nlohmann::json());
  if (of == "optimizer.lr") return ConsistentRates();
  return of == "return" ? ConsistentReturns() : ConsistentRanks();
}

}  // namespace

const Relation* Consistent() {
  static const auto* const kRelation =
      new RelationForms("Consistent",
                        {ConsistentRanks(), ConsistentVariables(),
                         ConsistentRates(), ConsistentReturns()},
                        FormOf);
  return kRelation;
}

}  // namespace traincheck
