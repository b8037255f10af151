// A moment that a user names on the command line: how long ago, for how long,
// or when.
#ifndef TRAINCHECK_CTL_TEXT_SINCE_H_
#define TRAINCHECK_CTL_TEXT_SINCE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// "90s", "10m", "2h", "3d": so long before `now`; "2026-03-01" (UTC) or
// "2026-03-01T09:05:07Z": then. CLOCK_REALTIME nanoseconds. InvalidArgument
// says what may be written.
[[nodiscard]] absl::StatusOr<uint64_t> ParseSince(const std::string& text,
                                                  uint64_t now_unix_ns);

// The same ahead: "3d" from now on, or then; InvalidArgument also if that is
// over.
[[nodiscard]] absl::StatusOr<uint64_t> ParseUntil(const std::string& text,
                                                  uint64_t now_unix_ns);

// CLOCK_REALTIME.
uint64_t NowUnixNs();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_SINCE_H_
