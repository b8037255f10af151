#include "invariants/sets/identity.h"

#include "base/hash.h"
#include "base/printable_text.h"

namespace traincheck {

std::string IdOf(const Invariant& invariant) {
  // Neither scope nor experiments: the same rule has one id in every set, so
  // that what is said of it (disabled, marked) holds for all of them.
  const nlohmann::json content = {
      {"parameters", invariant.rule->parameters()},
      {"precondition", invariant.precondition.ToJson()},
      {"relation", invariant.rule->relation_name()}};
  return HashText(
      content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string TextOf(const Invariant& invariant) {
  std::string text = invariant.rule->Describe();
  if (!invariant.precondition.empty()) {
    text += " Holds where " + invariant.precondition.Describe() + ".";
  }
  // Names of functions and variables come from programs and files.
  return EscapeUnprintable(text);
}

}  // namespace traincheck
