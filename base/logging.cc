#include "base/logging.h"

#include <memory>
#include <string_view>
#include <utility>

#include "base/printable_text.h"
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

}  // namespace

bool InitLogging(const std::string& program, const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(program));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern(
      "%Y-%m-%dT%H:%M:%S.%e%z %l %n: %*");
  spdlog::set_formatter(std::move(formatter));
  const auto parsed = spdlog::level::from_str(level);
  const bool known = parsed != spdlog::level::off || level == "off";
  spdlog::set_level(known ? parsed : spdlog::level::warn);
  return known;
}

}  // namespace traincheck
