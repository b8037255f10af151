#include "agent/capture/log.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "agent/capture/agent_settings.h"

namespace traincheck::agent {
namespace {

bool LevelIs(const char* name) { return SettingOf("TRAINCHECK_LOG") == name; }

}  // namespace

// One write(2) for the whole line, so that lines of several ranks do not mix.
void LogLine(std::string_view message) {
  if (LevelIs("off")) return;
  std::string line = "traincheck: " + std::string(message);
  // A message may quote the text of an exception, which may have several lines.
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // A stderr that takes nothing is no reason to stop.
  [[maybe_unused]] const ssize_t written = write(2, line.data(), line.size());
}

void LogOnce(std::string_view key, std::string_view message) {
  if (LevelIs("error")) return;
  static auto* seen = new std::set<std::string, std::less<>>();
  if (seen->find(key) != seen->end()) return;
  seen->emplace(key);
  LogLine(message);
}

}  // namespace traincheck::agent
