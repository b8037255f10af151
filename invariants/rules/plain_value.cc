#include "invariants/rules/plain_value.h"

#include <cmath>

namespace traincheck {

std::optional<nlohmann::json> PlainValue(const CallValue& value) {
  // A container, or a text of which only the length was recorded.
  if (value.length.has_value()) return std::nullopt;
  if (value.Get<NoneValue>()) return nlohmann::json(nullptr);
  if (const bool* flag = value.Get<bool>()) return nlohmann::json(*flag);
  if (const int64_t* number = value.Get<int64_t>()) {
    return nlohmann::json(*number);
  }
  // JSON has no NaN and no infinity.
  const double* number = value.Get<double>();
  if (number && std::isfinite(*number)) return nlohmann::json(*number);
  if (const std::string* text = value.Get<std::string>()) {
    return nlohmann::json(*text);
  }
  return std::nullopt;
}

bool IsPlain(const nlohmann::json& json) {
  return json.is_null() || json.is_boolean() || json.is_number() ||
         json.is_string();
}

// For findings: people compare it with what stands in their script.
std::string PythonText(const nlohmann::json& plain) {
  if (plain.is_null()) return "None";
  if (plain.is_boolean()) return plain.get<bool>() ? "True" : "False";
  if (plain.is_string()) return "'" + plain.get<std::string>() + "'";
  return plain.dump();
}

}  // namespace traincheck
