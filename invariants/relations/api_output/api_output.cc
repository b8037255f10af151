#include "invariants/relations/api_output/api_output.h"

#include "base/json_reader.h"
#include "invariants/relations/api_output/output_bound.h"
#include "invariants/relations/api_output/output_equal.h"
#include "invariants/rules/relation_forms.h"

namespace traincheck {

namespace {

// Parameters of neither form go to *equal*, whose Parse reports the wrong key
// with its path.
const Relation* FormOf(const nlohmann::json& parameters) {
  const bool bound = Member(parameters, "is") == "at_most";
  return bound ? OutputBound() : OutputEqual();
}

}  // namespace

const Relation* ApiOutput() {
  static const auto* const kRelation =
      new RelationForms({OutputEqual(), OutputBound()}, FormOf);
  return kRelation;
}

}  // namespace traincheck
