#include "invariants/facts/fact_value.h"

namespace traincheck {

nlohmann::json FactToJson(const FactValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return nullptr;
}

const Fact* ReadFact(const char* key, JsonReader* reader) {
  const Fact* fact = FindFact(reader->String(key));
  if (!fact) reader->Fail(key, "no fact of this version");
  return fact;
}

FactValue ReadFactValue(const Fact* fact, JsonReader* reader) {
  // Read in any case: Finish refuses a key that nobody has read, and would name
  // it beside the fact that is wrong.
  const nlohmann::json& json = reader->Any("value");
  FactValue value;
  if (!fact) return value;
  if (fact->type == FactType::kBool && json.is_boolean()) {
    value = json.get<bool>();
  } else if (fact->type == FactType::kNumber && json.is_number()) {
    value = json.get<double>();
  } else if (fact->type == FactType::kText && json.is_string()) {
    value = json.get<std::string>();
  }
  if (!IsKnown(value)) reader->Fail("value", "not of the fact's type");
  return value;
}

std::string Describe(const Fact& fact, const FactValue& value) {
  const std::string text = fact.text;
  if (const auto* flag = std::get_if<bool>(&value)) {
    return *flag ? text : fact.otherwise;
  }
  // The text "" stands for the absence of what the fact names, as of a type
  // outside of all autocast regions.
  if (value == FactValue(std::string())) return text + " is none";
  return text + " is " + FactToJson(value).dump();
}

}  // namespace traincheck
