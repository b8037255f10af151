// The capture plan of a set as a file, so that a training that is to be checked
// against it records under it from its first call. Without the file the plan
// comes from the server after the first steps.
#ifndef TRAINCHECK_CTL_RUN_PLAN_FILE_H_
#define TRAINCHECK_CTL_RUN_PLAN_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "ctl/client.h"

namespace traincheck::ctl {

// Asks the server and writes $XDG_STATE_HOME/traincheck/plans/SET-HASH.json
// (~/.local/state; without a home $TMPDIR/traincheck-UID/plans), which appears
// whole or not at all and stays: processes may start later. Errors say what
// cannot be had.
[[nodiscard]] absl::StatusOr<std::string> FetchPlanFile(Client* client,
                                                        const std::string& set);

// Is it for us to find a plan? Not where one is given, here or in the
// environment.
bool WantsPlanOfSet(const std::string& check_set, const std::string& plan);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_PLAN_FILE_H_
