#include "agent/capture/agent_settings.h"

#include <unistd.h>

#include <cstdlib>

#include "proto/settings/settings.h"

namespace traincheck::agent {
namespace {

// The settings are never destroyed, because threads of the program may still
// record while the process ends.
Settings& Loaded() {
  static auto* const settings = new Settings;
  return *settings;
}

}  // namespace

std::string LoadSettings() { return Loaded().Load(environ); }

// The environment is read at each call and not kept, since a program may set
// variables before it starts workers.
std::string SettingOf(const char* variable) {
  const char* const set = std::getenv(variable);
  // A variable that is set to nothing hides the file's value, too.
  if (set != nullptr) return set;
  for (const auto& [name, value] : SettingsOfFile()) {
    if (name == variable) return value;
  }
  return "";
}

const std::vector<std::pair<std::string, std::string>>& SettingsOfFile() {
  return Loaded().of_file();
}

}  // namespace traincheck::agent
