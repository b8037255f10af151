// A command that a user or an operator has given, started beside what we do.
//
// Its text goes to /bin/sh as it is. What others have named (a run, a headline)
// is never part of the text: it is a variable of its environment.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_BASE_SHELL_COMMAND_H_
#define TRAINCHECK_BASE_SHELL_COMMAND_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace traincheck {

// A value is cut off behind so many bytes: the kernel takes no environment of
// any size.
inline constexpr size_t kMaxVariableBytes = 4096;

struct ShellCommand {
  std::string text;  // for /bin/sh -c
  // Beside the environment of this process. Values become printable: a script
  // prints them as likely as not.
  std::vector<std::pair<std::string, std::string>> variables;
};

// Returns its process, which the caller waits for and which leads a process
// group: Ctrl-C does not reach it. It reads /dev/null, writes to our stderr,
// and has no other file of ours open and no signal blocked or ignored.
// Unavailable, saying why, if it cannot be started.
[[nodiscard]] absl::StatusOr<pid_t> StartShellCommand(
    const ShellCommand& command);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_SHELL_COMMAND_H_
