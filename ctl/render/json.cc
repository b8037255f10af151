#include "ctl/render/json.h"

#include "ctl/text/utc_time.h"

namespace traincheck::ctl {
namespace {

// Text that is not UTF-8 is replaced: dump would throw otherwise. Names in a
// training may be any bytes.
constexpr auto kReplace = Json::error_handler_t::replace;

}  // namespace

Json TextOrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json TimeOrNull(uint64_t unix_ns) {
  return unix_ns == 0 ? Json() : Json(Rfc3339(unix_ns));
}

std::string PrettyJson(const Json& json) {
  return json.dump(2, ' ', false, kReplace) + "\n";
}

std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, kReplace) + "\n";
}

}  // namespace traincheck::ctl
