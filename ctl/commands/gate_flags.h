// The options by which the exit code of `run` and `check` is a verdict.
#ifndef TRAINCHECK_CTL_COMMANDS_GATE_FLAGS_H_
#define TRAINCHECK_CTL_COMMANDS_GATE_FLAGS_H_

#include "CLI/CLI.hpp"
#include "ctl/run/gate.h"

namespace traincheck::ctl {

// REQUIRES: `options` outlives the parsing.
inline void AddGateFlags(CLI::App* command, GateOptions* options) {
  command->add_flag("--fail-on-violation", options->fail_on_violation,
                    "Exit with 10 if an invariant is violated, with 11 if "
                    "none was decided or the check has not finished");
  command
      ->add_option("--min-coverage", options->min_coverage,
                   "Exit with 11 unless so many PERCENT of the invariants "
                   "that apply are decided; 0: do not ask")
      ->check(CLI::Range(0.0, 100.0));
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_GATE_FLAGS_H_
