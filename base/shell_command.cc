#include "base/shell_command.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"
#include "base/spawn_plan.h"

namespace traincheck {
namespace {

constexpr char kShell[] = "/bin/sh";

// The value is cut before it is made printable: a character that was cut in two
// is not UTF-8 and becomes an escape.
std::string Harmless(const std::string& value) {
  return EscapeUnprintable(value.substr(0, kMaxVariableBytes));
}

}  // namespace

// Only the operator's text is parsed by the shell. Values of others are
// variables and cannot become commands.
absl::StatusOr<pid_t> StartShellCommand(const ShellCommand& command) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : command.variables) {
    variables.push_back(absl::StrCat(name, "=", Harmless(value)));
  }
  pid_t pid = -1;
  const int error =
      SpawnPlan().Spawn(kShell, {kShell, "-c", command.text}, variables, &pid);
  if (error == 0) return pid;
  return absl::UnavailableError(
      absl::StrCat(kShell, " cannot be started: ", std::strerror(error)));
}

}  // namespace traincheck
