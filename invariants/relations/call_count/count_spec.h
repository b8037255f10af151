// The parameters of CallCount (call_count.h).
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_COUNT_SPEC_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_COUNT_SPEC_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/process_relation.h"

namespace traincheck {

// More are no rule.
inline constexpr size_t kMostCounts = 3;

enum class CountPer { kStep, kEpoch, kCall };

struct CountSpec {
  FunctionMatch function;
  std::set<uint64_t> counts;
  CountPer per = CountPer::kStep;
  FunctionMatch window;  // kCall

  nlohmann::json ToJson() const;
  void AddNeeds(CaptureNeeds* needs) const;
  // Null: a step or a pass.
  const FunctionMatch* Window() const {
    return per == CountPer::kCall ? &window : nullptr;
  }
  static constexpr bool is_structure() { return true; }
  // A step, a pass and a call of another function are windows for themselves.
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<CountSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path);
  // "is called once in each step".
  std::string Describe() const;
  // "once", "2 or 3 times".
  std::string CountWords() const;
};

using CountRule = SpecRule<CountSpec>;

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_COUNT_SPEC_H_
