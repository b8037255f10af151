// Which functions a rule speaks of: one by its name, all that have a role, or
// all of a category. In JSON {"name": F}, {"role": F} or {"category": C}.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_FUNCTION_MATCH_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_FUNCTION_MATCH_H_

#include <string>

#include "invariants/facts/definitions.h"
#include "invariants/json_reader.h"
#include "invariants/plan/capture_needs.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// Narrow to general.
enum class Level { kName, kRole, kCategory };

struct FunctionMatch {
  Level level = Level::kName;
  std::string text;

  bool Matches(const FunctionInfo& function) const;
  std::string Describe() const;
  // Do programs of all kinds have it? Names of user code say nothing to
  // others.
  bool IsGeneral() const;
};

nlohmann::json ToJson(const FunctionMatch& match);

// Reads "function". Errors go to `parent`.
FunctionMatch ReadFunctionMatch(JsonReader* parent);

// Its calls must be recorded.
void AddCalls(const FunctionMatch& match, CaptureNeeds* needs);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_FUNCTION_MATCH_H_
