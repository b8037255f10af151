#include "invariants/relations/api_arg/api_arg.h"

#include "base/json_reader.h"
#include "invariants/relations/api_arg/arg_constant.h"
#include "invariants/relations/api_arg/arg_distinct.h"
#include "invariants/relations/api_arg/arg_equal.h"
#include "invariants/relations/api_arg/arg_fact.h"
#include "invariants/relations/api_arg/arg_usage.h"
#include "invariants/relations/api_arg/arg_workers.h"
#include "invariants/rules/relation_forms.h"

namespace traincheck {

namespace {

// Two forms share the word "distinct": only the one across workers has the key
// "across".
const Relation* FormOf(const nlohmann::json& parameters) {
  const nlohmann::json& is = Member(parameters, "is");
  if (is == "equal") return ArgEqual();
  if (is == "fact") return ArgFact();
  if (is == "usage") return ArgUsage();
  // A form that does not exist goes to *constant*, whose Parse reports the
  // wrong key with its path.
  if (is != "distinct") return ArgConstant();
  return parameters.contains("across") ? ArgWorkers() : ArgDistinct();
}

}  // namespace

const Relation* ApiArg() {
  static const auto* const kRelation =
      new RelationForms({ArgConstant(), ArgDistinct(), ArgEqual(), ArgFact(),
                         ArgUsage(), ArgWorkers()},
                        FormOf);
  return kRelation;
}

}  // namespace traincheck
