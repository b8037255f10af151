// The parameters of CallCount (call_count.h).
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_COUNT_SPEC_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_COUNT_SPEC_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "invariants/relations/function_match.h"
#include "invariants/relations/relation.h"

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
  // "is called once in each step".
  std::string Describe() const;
  // "once", "2 or 3 times".
  std::string CountWords() const;
};

CountSpec ReadCountSpec(const nlohmann::json& parameters,
                        const std::string& path, absl::Status* status);
// REQUIRES: they were read without an error.
CountSpec CountSpecOf(const nlohmann::json& parameters);

struct CountRule {
  size_t index = 0;
  const Rule* rule = nullptr;
  CountSpec spec;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_COUNT_SPEC_H_
