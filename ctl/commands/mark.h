// `violations mark`, which violations.cc puts among its commands.
#ifndef TRAINCHECK_CTL_COMMANDS_MARK_H_
#define TRAINCHECK_CTL_COMMANDS_MARK_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "ctl/client.h"
#include "ctl/context.h"

namespace traincheck::ctl {

// As AddViolations: commands.h.
void AddMark(CLI::App* group, const Context* context, Action* action);

// By its id or what begins it alone (id_prefix.h).
absl::StatusOr<v1::Violation> FindViolation(Client& client,
                                            const std::string& id);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_MARK_H_
