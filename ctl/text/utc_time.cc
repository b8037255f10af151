#include "ctl/text/utc_time.h"

#include <ctime>

#include "absl/strings/str_format.h"

namespace traincheck::ctl {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr uint64_t kNsPerMs = 1'000'000;

// UTC everywhere: hosts of jobs, the daemon's and the user's may be in
// different zones.
std::tm Utc(uint64_t unix_ns) {
  const std::time_t seconds = static_cast<std::time_t>(unix_ns / kNsPerSecond);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return parts;
}

}  // namespace

std::string Rfc3339(uint64_t unix_ns) {
  const std::tm t = Utc(unix_ns);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                         t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour,
                         t.tm_min, t.tm_sec, unix_ns % kNsPerSecond / kNsPerMs);
}

std::string CompactTime(uint64_t unix_ns) {
  const std::tm t = Utc(unix_ns);
  return absl::StrFormat("%04d%02d%02d-%02d%02d%02d", t.tm_year + 1900,
                         t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min,
                         t.tm_sec);
}

std::string Duration(double seconds) {
  // Casting a negative number, or NaN, would be undefined; neither is above 0.
  const uint64_t s = seconds > 0 ? static_cast<uint64_t>(seconds) : 0;
  if (s < 60) return absl::StrFormat("%ds", s);
  if (s < 3600) return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  if (s < 86400) return absl::StrFormat("%dh%02dm", s / 3600, s % 3600 / 60);
  return absl::StrFormat("%dd%02dh", s / 86400, s % 86400 / 3600);
}

}  // namespace traincheck::ctl
