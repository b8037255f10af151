// Values that rules name: numbers, bools, texts and None, as JSON.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_PLAIN_VALUE_H_
#define TRAINCHECK_INVARIANTS_RULES_PLAIN_VALUE_H_

#include <optional>
#include <string>

#include "invariants/trace/call_values.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// nullopt: a tensor, an object, a container, or not known.
std::optional<nlohmann::json> PlainValue(const CallValue& value);

// May a rule name such a value?
bool IsPlain(const nlohmann::json& json);

// As Python writes it: True, None, 0.1, 'mean'.
std::string PythonText(const nlohmann::json& plain);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_PLAIN_VALUE_H_
