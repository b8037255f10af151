// Does a rule speak of functions and variables that the user wants?
//
// Threads: pure functions.
#ifndef TRAINCHECK_INFERENCE_NAME_FILTER_H_
#define TRAINCHECK_INFERENCE_NAME_FILTER_H_

#include "inference/options.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// By the names in the rule's parameters: functions by name or role (keys
// "name" and "role"), variables by their full names (keys "variable", "a" and
// "b").
bool IsWanted(const nlohmann::json& parameters,
              const InferenceOptions& options);

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_NAME_FILTER_H_
