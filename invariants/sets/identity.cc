#include "invariants/sets/identity.h"

#include "base/hash.h"
#include "base/printable_text.h"
#include "invariants/relations/registry.h"
#include "invariants/rules/precondition.h"

namespace traincheck {

std::string IdOf(const Invariant& invariant) {
  const nlohmann::json content = {{"parameters", invariant.parameters},
                                  {"precondition", invariant.precondition},
                                  {"relation", invariant.relation}};
  return HashText(
      content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string TextOf(const Invariant& invariant) {
  const Relation* relation = FindRelation(invariant.relation);
  if (!relation) return "";
  std::string text = relation->Describe(invariant.parameters);
  auto precondition = Precondition::FromJson(invariant.precondition, "");
  if (precondition.ok() && !precondition->empty()) {
    text += " Holds where " + precondition->Describe() + ".";
  }
  // Names of functions and variables come from programs and files.
  return EscapeUnprintable(text);
}

}  // namespace traincheck
