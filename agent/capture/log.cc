#include "agent/capture/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

namespace traincheck {

void LogLine(std::string_view message) {
  const char* level = std::getenv("TRAINCHECK_LOG");
  if (level != nullptr && std::strcmp(level, "off") == 0) return;
  std::string line = "traincheck: " + std::string(message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // A stderr that takes nothing is no reason to stop.
  [[maybe_unused]] const ssize_t written = write(2, line.data(), line.size());
}

void LogOnce(std::string_view key, std::string_view message) {
  static auto* seen = new std::set<std::string, std::less<>>();
  if (seen->find(key) != seen->end()) return;
  seen->emplace(key);
  LogLine(message);
}

}  // namespace traincheck
