// The specification of a ReproducedSteps rule: how a reference run began, and
// what its steps began with.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_COURSE_SPEC_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_COURSE_SPEC_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/relations/reproduced_steps/step_digests.h"
#include "invariants/rules/relation.h"
#include "nlohmann/json.hpp"

namespace traincheck {

struct CourseStart {
  std::string host;
  std::string rank;                            // "1 of 2"; "": it has none
  std::map<std::string, uint64_t> generators;  // digests by name
};

struct CourseSpec {
  static constexpr bool kIsHabit = true;
  static constexpr bool is_structure() { return true; }

  CourseStart start;
  std::vector<StepDigest> steps;  // all complete

  nlohmann::json ToJson() const;
  std::string Describe() const;
  static void AddNeeds(CaptureNeeds* needs);
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<CourseSpec> Parse(const nlohmann::json& parameters,
                                          const std::string& path);
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_COURSE_SPEC_H_
