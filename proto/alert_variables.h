// What a command that is started for an alert finds in its environment, by
// `traincheckctl run --on-alert` and by the daemon's --on-alert.
//
// Threads: pure function.
#ifndef TRAINCHECK_PROTO_ALERT_VARIABLES_H_
#define TRAINCHECK_PROTO_ALERT_VARIABLES_H_

#include <string>
#include <utility>
#include <vector>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck {

// Name and value: TRAINCHECK_ALERT_RUN, _INCIDENT, _HEADLINE, _SITE, _STEP and
// _RANKS of the incident that the violation leads. What is not known is "". The
// values are as a run and its rules named them.
std::vector<std::pair<std::string, std::string>> AlertVariables(
    const v1::Violation& lead);

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_ALERT_VARIABLES_H_
