// Scripts that complete the words of a program, each made from the parser's
// commands and options, so that they cannot differ from them.
//
// Threads: pure.
#ifndef TRAINCHECK_CTL_COMMANDS_COMPLETION_SCRIPTS_H_
#define TRAINCHECK_CTL_COMMANDS_COMPLETION_SCRIPTS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace traincheck::ctl {

// What the shell sources. Words behind "--" are another program's: bash and
// fish offer files for them, zsh what that program would have. REQUIRES: `root`
// has a name.
std::string BashScript(const CLI::App& root);
std::string ZshScript(const CLI::App& root);
std::string FishScript(const CLI::App& root);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_COMPLETION_SCRIPTS_H_
