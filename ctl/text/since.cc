#include "ctl/text/since.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace traincheck::ctl {
namespace {

// 0: not a unit.
uint64_t SecondsOf(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return 60;
    case 'h':
      return 3600;
    case 'd':
      return 86400;
    default:
      return 0;
  }
}

}  // namespace

absl::StatusOr<uint64_t> ParseSince(const std::string& text,
                                    uint64_t now_unix_ns) {
  const uint64_t unit = text.empty() ? 0 : SecondsOf(text.back());
  uint32_t count = 0;
  if (unit != 0 && absl::SimpleAtoi(text.substr(0, text.size() - 1), &count)) {
    const uint64_t ago = count * unit * 1'000'000'000;
    return now_unix_ns - std::min(ago, now_unix_ns);
  }
  absl::Time time;
  std::string error;
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%d%ET%H:%M:%E*S%Ez"}) {
    if (!absl::ParseTime(format, text, &time, &error)) continue;
    return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixNanos(time)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not a time: write how long ago (90s, ",
                   "10m, 2h, 3d) or when (2026-03-01, 2026-03-01T09:05:07Z)"));
}

uint64_t NowUnixNs() {
  return static_cast<uint64_t>(absl::GetCurrentTimeNanos());
}

}  // namespace traincheck::ctl
