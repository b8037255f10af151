#include "base/logging.h"

#include "spdlog/sinks/stdout_sinks.h"

namespace traincheck {

bool InitLogging(const std::string& program, const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(program));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %n: %v");
  const auto parsed = spdlog::level::from_str(level);
  const bool known = parsed != spdlog::level::off || level == "off";
  spdlog::set_level(known ? parsed : spdlog::level::warn);
  return known;
}

}  // namespace traincheck
