// How sure a violation is, beyond its grade: what its rule has said in other
// runs, and how much of the run was checked.
#ifndef TRAINCHECK_CTL_RENDER_CONFIDENCE_H_
#define TRAINCHECK_CTL_RENDER_CONFIDENCE_H_

#include <optional>
#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"

namespace traincheck::ctl {

struct Confidence {
  std::optional<v1::RuleRecord> record;    // nullopt: an older server
  std::optional<v1::CheckProgress> check;  // of the violation's run
};

// One line for `violations show`; "" where nothing is known.
std::string ConfidenceText(const Confidence& confidence);

// Adds {rule_record: {decided_runs, violated_runs, false_alarms, confirmed},
// coverage: {decided, total}} to a violation's object; null: not known.
void AddConfidence(const Confidence& confidence, Json* json);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_CONFIDENCE_H_
