// Deletes a set that nobody needs just now.
//
// Threads: any.
#ifndef TRAINCHECK_SERVER_CONTROL_SET_DELETION_H_
#define TRAINCHECK_SERVER_CONTROL_SET_DELETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/runs/registry.h"
#include "server/sets/rule_policy.h"
#include "server/sets/set_catalog.h"

namespace traincheck::server {

// `set`: NAME or NAME@VERSION. FailedPrecondition naming the run in progress
// that is checked against it or the experiment that it is deployed for; else
// the errors of SetCatalog::Delete.
[[nodiscard]] absl::StatusOr<v1::DeleteSetReply> DeleteSet(
    const std::string& set, const std::string& owner, const Registry& registry,
    const RulePolicy& policy, SetCatalog* sets);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_SET_DELETION_H_
