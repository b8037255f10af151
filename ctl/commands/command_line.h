// The command line: global options, the commands, and what follows "--".
#ifndef TRAINCHECK_CTL_COMMANDS_COMMAND_LINE_H_
#define TRAINCHECK_CTL_COMMANDS_COMMAND_LINE_H_

namespace traincheck::ctl {

// Parses, runs the command and returns the exit code.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_COMMAND_LINE_H_
