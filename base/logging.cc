#include "base/logging.h"

#include <memory>
#include <string_view>
#include <utility>

#include "base/printable_text.h"
#include "nlohmann/json.hpp"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace traincheck {
namespace {

// The message as one printable line, whoever the texts in it are from.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string text = EscapeUnprintable(
        std::string_view(message.payload.data(), message.payload.size()));
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

// The message as a JSON text; what is no UTF-8 in it is replaced. In ASCII all
// that is not printable is an escape, so that nothing else has to look for it.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const nlohmann::json payload =
        std::string(message.payload.data(), message.payload.size());
    const std::string text =
        payload.dump(-1, ' ', /*ensure_ascii=*/true,
                     nlohmann::json::error_handler_t::replace);
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

std::unique_ptr<spdlog::formatter> NewFormatter(LogFormat format) {
  // Only the message (%*) can hold text of others: the rest of the line is ours
  // and is written as it is.
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  if (format == LogFormat::kText) {
    formatter->add_flag<PrintableMessage>('*').set_pattern(
        "%Y-%m-%dT%H:%M:%S.%e%z %l %n: %*");
  } else {
    formatter->add_flag<JsonMessage>('*').set_pattern(
        R"({"level":"%l","message":%*,"program":"%n",)"
        R"("time":"%Y-%m-%dT%H:%M:%S.%e%z"})");
  }
  return formatter;
}

}  // namespace

// False: the level is unknown, and warnings are logged.
bool InitLogging(const std::string& program, const std::string& level,
                 LogFormat format) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(program));
  spdlog::set_formatter(NewFormatter(format));
  // from_str takes every word that it does not know for "off".
  const auto parsed = spdlog::level::from_str(level);
  const bool known = parsed != spdlog::level::off || level == "off";
  spdlog::set_level(known ? parsed : spdlog::level::warn);
  return known;
}

}  // namespace traincheck
