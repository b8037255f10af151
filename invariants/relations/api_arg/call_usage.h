// How a function is called: what kinds of tensors it is given and gives, and
// what its other arguments are.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_CALL_USAGE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_CALL_USAGE_H_

#include <map>
#include <string>

#include "invariants/trace/call_values.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// By trait: "padding_idx", of a tensor "input" (the text "a tensor"),
// "input.dtype", "input.dimensions" and "input.requires_grad"; of the result
// likewise "result.dtype"; of a container, besides the text "an object",
// "dims.length" and its first elements, "dims[0]". What was not told is left
// out.
using Usage = std::map<std::string, nlohmann::json>;

inline constexpr char kResultTrait[] = "result";
inline constexpr char kTensor[] = "a tensor";
inline constexpr char kGradTrait[] = ".requires_grad";

// Of a call that has ended.
Usage UsageOf(const Call& call, const ProcessDefinitions& definitions);

// "input" of "input.dtype", "result[0]" of "result[0].dtype".
std::string OwnerOfTrait(const std::string& trait);
// "result" of "result[0].dtype".
std::string ArgumentOfTrait(const std::string& trait);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_CALL_USAGE_H_
