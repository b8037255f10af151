#include "base/shell_command.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"
#include "base/spawn_plan.h"

namespace traincheck {
namespace {

constexpr char kShell[] = "/bin/sh";

// Cut first: what is left of a character is no UTF-8 then, and made printable.
std::string Harmless(const std::string& value) {
  return EscapeUnprintable(value.substr(0, kMaxVariableBytes));
}

}  // namespace

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
