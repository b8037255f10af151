#include "invariants/relations/rate_schedule/rate_course.h"

#include <bit>
#include <cmath>
#include <iterator>

namespace traincheck {
namespace {

// Steps from 0 on that are all looked at.
constexpr uint64_t kEach = 64;
// Relative to the larger rate. Schedulers compute rates in double, in one order
// of operations or another.
constexpr double kRounding = 1e-6;

}  // namespace

bool RateCourse::IsLookedAt(uint64_t step) {
  if (step < kEach) return true;
  // Between two powers of two 32 steps each, so that the number of entries
  // grows with the logarithm of the steps.
  const uint64_t stride = std::bit_floor(step) / (kEach / 2);
  return step % stride == 0;
}

// A constant rate has one entry, and a schedule by epochs one for each epoch.
void RateCourse::Add(uint64_t step, double rate) {
  const std::optional<double> before = At(step);
  if (!before || !AreEqual(*before, rate)) changes_[step] = rate;
}

std::optional<double> RateCourse::At(uint64_t step) const {
  // The last change at or before the step.
  const auto next = changes_.upper_bound(step);
  if (next == changes_.begin()) return std::nullopt;
  return std::prev(next)->second;
}

bool RateCourse::AreEqual(double some, double other) {
  if (some == other) return true;
  const double larger = std::fmax(std::fabs(some), std::fabs(other));
  return std::fabs(some - other) <= kRounding * larger;
}

nlohmann::json RateCourse::ToJson() const {
  nlohmann::json entries = nlohmann::json::array();
  for (const auto& [step, rate] : changes_) entries.push_back({step, rate});
  return entries;
}

std::optional<RateCourse> RateCourse::Parse(const nlohmann::json& json) {
  if (!json.is_array() || json.empty()) return std::nullopt;
  RateCourse course;
  for (const nlohmann::json& entry : json) {
    if (!entry.is_array() || entry.size() != 2) return std::nullopt;
    if (!entry[0].is_number_unsigned() || !entry[1].is_number()) {
      return std::nullopt;
    }
    course.changes_[entry[0].get<uint64_t>()] = entry[1].get<double>();
  }
  // Two entries of one step contradict each other.
  if (course.changes_.size() != json.size()) return std::nullopt;
  // At() has a value for each step then.
  if (!course.changes_.contains(0)) return std::nullopt;
  return course;
}

}  // namespace traincheck
