#include "proto/alert_variables.h"

namespace traincheck {

// The variables that an operator's alert command finds in its environment
// (docs/operations.md). Each is there even if it is empty, so that scripts need
// no test.
std::vector<std::pair<std::string, std::string>> AlertVariables(
    const v1::Violation& lead) {
  std::string ranks;
  for (const int32_t rank : lead.ranks()) {
    ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
  }
  return {{"TRAINCHECK_ALERT_RUN", lead.run()},
          {"TRAINCHECK_ALERT_INCIDENT", lead.id()},
          {"TRAINCHECK_ALERT_HEADLINE",
           lead.headline().empty() ? lead.text() : lead.headline()},
          {"TRAINCHECK_ALERT_SITE", lead.sites().empty() ? "" : lead.sites(0)},
          {"TRAINCHECK_ALERT_STEP",
           lead.has_first_step() ? std::to_string(lead.first_step()) : ""},
          {"TRAINCHECK_ALERT_RANKS", ranks}};
}

}  // namespace traincheck
