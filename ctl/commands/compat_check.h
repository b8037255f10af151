// `check --compat traincheck`: what TrainCheck itself would say, without a
// server.
#ifndef TRAINCHECK_CTL_COMMANDS_COMPAT_CHECK_H_
#define TRAINCHECK_CTL_COMMANDS_COMPAT_CHECK_H_

#include <string>

#include "ctl/context.h"
#include "ctl/run/gate.h"

namespace traincheck::ctl {

struct CompatCheckOptions {
  std::string compat;  // "": not asked for
  std::string trace;
  std::string invariants;
};

// Returns the exit code.
int CompatCheck(const Context& context, const CompatCheckOptions& options,
                const GateOptions& gate);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_COMPAT_CHECK_H_
