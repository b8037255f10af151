#include "server/zoom/zoom_plan.h"

#include <string>

namespace traincheck::server {
namespace {

// A name with one of these would be a pattern.
constexpr char kSpecial[] = "*?[";

void AddUpTo(size_t most, const std::string& name,
             std::set<std::string>* names) {
  const bool fits =
      !name.empty() && name.find_first_of(kSpecial) == std::string::npos;
  // First come, first kept: the lead comes first.
  if (fits && names->size() < most) names->insert(name);
}

}  // namespace

// REQUIRES: the lead comes first. Names are kept in the order in which they
// come, up to the limits, and the lead's matter most.
ZoomSubject SubjectOf(const std::vector<v1::Violation>& incident) {
  ZoomSubject subject;
  for (const v1::Violation& violation : incident) {
    for (const std::string& function : violation.apis()) {
      AddUpTo(kMaxZoomedFunctions, function, &subject.functions);
    }
    for (const std::string& variable : violation.variables()) {
      AddUpTo(kMaxZoomedVariables, variable, &subject.variables);
    }
  }
  return subject;
}

// The part "zoom" of a capture plan. Random generators are recorded whatever
// the incident is about.
nlohmann::json ZoomOn(const ZoomSubject& subject, uint32_t steps) {
  nlohmann::json zoom = {{"steps", steps}, {"generators", true}};
  for (const std::string& function : subject.functions) {
    zoom["calls"].push_back({{"function", function},
                             {"arguments", "*"},
                             {"returns", true},
                             {"autograd", true}});
  }
  if (subject.variables.empty()) return zoom;
  // On both sides of the optimizer's step, and gradients from the backward to
  // the step: with these LookCloser can say what the step changed.
  zoom["variables"] = subject.variables;
  zoom["state"] = {{"parameter.data", {"pre_step", "post_step"}},
                   {"parameter.grad", {"backward_end", "pre_step"}},
                   {"buffer.data", {"step_end"}}};
  return zoom;
}

}  // namespace traincheck::server
