#include "invariants/relations/api_arg.h"

#include "invariants/relations/arg_constant.h"
#include "invariants/relations/arg_distinct.h"
#include "invariants/relations/arg_equal.h"
#include "invariants/relations/arg_fact.h"
#include "invariants/relations/arg_workers.h"
#include "invariants/relations/relation_forms.h"

namespace traincheck {

namespace {

const Relation* FormOf(const nlohmann::json& parameters) {
  if (!parameters.is_object()) return ArgConstant();
  const nlohmann::json is = parameters.value("is", nlohmann::json());
  if (is == "equal") return ArgEqual();
  if (is == "fact") return ArgFact();
  if (is != "distinct") return ArgConstant();
  return parameters.contains("across") ? ArgWorkers() : ArgDistinct();
}

}  // namespace

const Relation* ApiArg() {
  static const auto* const kRelation = new RelationForms(
      "APIArg",
      {ArgConstant(), ArgDistinct(), ArgEqual(), ArgFact(), ArgWorkers()},
      FormOf);
  return kRelation;
}

}  // namespace traincheck
