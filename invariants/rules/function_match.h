// Which functions a rule speaks of: one by its name, all that have a role, or
// all of a category. In JSON {"name": F}, {"role": F} or {"category": C}.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_FUNCTION_MATCH_H_
#define TRAINCHECK_INVARIANTS_RULES_FUNCTION_MATCH_H_

#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "base/json_reader.h"
#include "invariants/rules/capture_needs.h"
#include "invariants/trace/definitions.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// Narrow to general.
enum class Level { kName, kRole, kCategory };

struct FunctionMatch {
  Level level = Level::kName;
  std::string text;

  bool operator==(const FunctionMatch& other) const = default;
  bool operator<(const FunctionMatch& other) const {
    return std::tie(level, text) < std::tie(other.level, other.text);
  }

  bool Matches(const FunctionInfo& function) const;
  // "torch.optim.sgd.SGD.step", "a call of kind save".
  std::string Describe() const;
  // "torch.optim.sgd.SGD.step is called", "an optimizer steps".
  std::string DescribeCalled() const;
  // Do programs of all kinds have it? Names of user code say nothing to
  // others.
  bool IsGeneral() const;
};

nlohmann::json ToJson(const FunctionMatch& match);

// Reads the object under the key. Errors go to `parent`.
FunctionMatch ReadFunctionMatch(JsonReader* parent,
                                const char* key = "function");
// Reads `json`, which stands at `path`.
[[nodiscard]] absl::StatusOr<FunctionMatch> FunctionMatchFromJson(
    const nlohmann::json& json, const std::string& path);

// The most general role of a function; its name where it has none.
FunctionMatch Broadest(const FunctionInfo& function);

// Its calls must be recorded.
void AddCalls(const FunctionMatch& match, CaptureNeeds* needs);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_FUNCTION_MATCH_H_
