// Rules of all JSON that traincheckctl prints: snake_case keys, always all of
// them and in the documented order; null where unknown; integers as numbers,
// ids as strings, times as RFC 3339 UTC.
#ifndef TRAINCHECK_CTL_RENDER_JSON_H_
#define TRAINCHECK_CTL_RENDER_JSON_H_

#include <cstdint>
#include <string>

#include "nlohmann/json.hpp"

namespace traincheck::ctl {

using Json = nlohmann::ordered_json;

// null for an empty text, that is an unknown one.
Json TextOrNull(const std::string& text);

// null for 0, that is an unknown time.
Json TimeOrNull(uint64_t unix_ns);

template <typename Values>
Json ArrayOf(const Values& values) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(value);
  return array;
}

// An array of convert(value).
template <typename Values, typename Convert>
Json ArrayOf(const Values& values, Convert convert) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(convert(value));
  return array;
}

// Indented, with a newline at the end.
std::string PrettyJson(const Json& json);

// One line with its newline.
std::string JsonLine(const Json& json);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_JSON_H_
