#include "agent/capture/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

namespace traincheck {
namespace {

bool LevelIs(const char* name) {
  const char* level = std::getenv("TRAINCHECK_LOG");
  return level != nullptr && std::strcmp(level, name) == 0;
}

}  // namespace

void LogLine(std::string_view message) {
  if (LevelIs("off")) return;
  std::string line = "traincheck: " + std::string(message);
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

}  // namespace traincheck
