#include "ctl/text/since.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace traincheck::ctl {
namespace {

// A hundred years. A longer span means for ever, and might not fit into 64 bits
// of nanoseconds.
constexpr uint64_t kMaxSpanS = uint64_t{36525} * 86400;

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

// "90s", "10m", "2h", "3d" in nanoseconds.
std::optional<uint64_t> ParseSpan(const std::string& text) {
  const uint64_t unit = text.empty() ? 0 : SecondsOf(text.back());
  uint32_t count = 0;
  if (unit == 0 || !absl::SimpleAtoi(text.substr(0, text.size() - 1), &count)) {
    return std::nullopt;
  }
  // A count of 32 bits times a day fits into 64 bits.
  return std::min(count * unit, kMaxSpanS) * 1'000'000'000;
}

// In UTC, unless the text has a zone: job hosts and laptops differ in theirs.
std::optional<uint64_t> ParseDate(const std::string& text) {
  absl::Time time;
  std::string error;
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%d%ET%H:%M:%E*S%Ez"}) {
    if (!absl::ParseTime(format, text, &time, &error)) continue;
    // Times have no sign: a date before 1970 counts as 1970.
    return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixNanos(time)));
  }
  return std::nullopt;
}

absl::Status NotATime(const std::string& text, const char* span) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is not a time: write ", span,
      " (90s, 10m, 2h, 3d) or when (2026-03-01, ", "2026-03-01T09:05:07Z)"));
}

}  // namespace

absl::StatusOr<uint64_t> ParseSince(const std::string& text,
                                    uint64_t now_unix_ns) {
  if (const std::optional<uint64_t> ago = ParseSpan(text)) {
    // 1970 at the earliest, which is before every run.
    return now_unix_ns - std::min(*ago, now_unix_ns);
  }
  if (const std::optional<uint64_t> time = ParseDate(text)) return *time;
  return NotATime(text, "how long ago");
}

// A time that is over is refused: a silence or a token that has ended when it
// is made is a mistake.
absl::StatusOr<uint64_t> ParseUntil(const std::string& text,
                                    uint64_t now_unix_ns) {
  uint64_t until = 0;
  if (const std::optional<uint64_t> span = ParseSpan(text)) {
    // The bound on spans keeps the sum far below 2^64.
    until = now_unix_ns + *span;
  } else if (const std::optional<uint64_t> time = ParseDate(text)) {
    until = *time;
  } else {
    return NotATime(text, "for how long");
  }
  if (until > now_unix_ns) return until;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is in the past"));
}

uint64_t NowUnixNs() {
  return static_cast<uint64_t>(absl::GetCurrentTimeNanos());
}

}  // namespace traincheck::ctl
