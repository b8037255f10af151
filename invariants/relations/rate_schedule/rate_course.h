// The learning rates of one parameter group over the steps of its optimizer.
//
// Of the steps each of the first 64 is looked at, then every second up to 128,
// every fourth up to 256, and so on: a course of a million steps has some 500
// entries, and the rate of a step that is left out is close to that of one that
// is not.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_RATE_SCHEDULE_RATE_COURSE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_RATE_SCHEDULE_RATE_COURSE_H_

#include <cstdint>
#include <map>
#include <optional>

#include "nlohmann/json.hpp"

namespace traincheck {

class RateCourse {
 public:
  static bool IsLookedAt(uint64_t step);

  // REQUIRES: steps come in order.
  void Add(uint64_t step, double rate);

  // None: before the first entry.
  std::optional<double> At(uint64_t step) const;
  // Equal, but for how the numbers were rounded.
  static bool AreEqual(double some, double other);

  // [[step, rate from there on], ...].
  nlohmann::json ToJson() const;
  // None: `json` is no such list, or does not begin at step 0.
  static std::optional<RateCourse> Parse(const nlohmann::json& json);

 private:
  std::map<uint64_t, double> changes_;  // step -> rate from there on
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_RATE_SCHEDULE_RATE_COURSE_H_
