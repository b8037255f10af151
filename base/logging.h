// Logs of our own processes: spdlog on stderr, one line an event.
//
//   InitLogging("traincheckd", "info");
//   spdlog::warn("batch quarantined process={} batch={} error=\"{}\"", ...);
//
// A line is printable, as base/printable_text.h says, and stays one line,
// whatever is in its values; text of peers goes in by QuotePrintable, so that
// it cannot pose as further values.
//
// Threads: InitLogging before the first other thread; spdlog is thread-safe.
#ifndef TRAINCHECK_BASE_LOGGING_H_
#define TRAINCHECK_BASE_LOGGING_H_

#include <string>

#include "spdlog/spdlog.h"

namespace traincheck {

enum class LogFormat {
  kText,
  // {"level":"info","message":"run begins run=a","program":"traincheckd",
  //  "time":"2026-01-01T00:00:00.000+00:00"}
  kJson,
};

// `level`: trace, debug, info, warning, error, critical or off; false (and
// level warning) for any other text.
bool InitLogging(const std::string& program, const std::string& level,
                 LogFormat format = LogFormat::kText);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_LOGGING_H_
