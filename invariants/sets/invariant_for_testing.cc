#include "invariants/sets/invariant_for_testing.h"

#include "invariants/sets/set_json.h"

namespace traincheck {

Invariant NewInvariant(const std::string& relation,
                       const nlohmann::json& parameters,
                       const nlohmann::json& precondition) {
  const nlohmann::json always = {{"all", nlohmann::json::array()}};
  return InvariantFromJson(
             {{"relation", relation},
              {"parameters", parameters},
              {"precondition", precondition.is_null() ? always : precondition},
              {"scope", "general"},
              {"experiments", nlohmann::json::array()},
              {"support", 0}})
      .value();
}

}  // namespace traincheck
