// Times for people and for JSON.
#ifndef TRAINCHECK_CTL_TEXT_UTC_TIME_H_
#define TRAINCHECK_CTL_TEXT_UTC_TIME_H_

#include <cstdint>
#include <string>

namespace traincheck::ctl {

// CLOCK_REALTIME nanoseconds as RFC 3339 with milliseconds:
// "2026-03-01T09:05:07.042Z".
std::string Rfc3339(uint64_t unix_ns);

// "20260301-090507"
std::string CompactTime(uint64_t unix_ns);

// "45s", "3m05s", "2h07m", "5d03h"
std::string Duration(double seconds);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_UTC_TIME_H_
