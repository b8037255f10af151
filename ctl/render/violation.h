// Violations: `violations list|show|watch` and the blocks that `run` prints
// while a training goes on.
#ifndef TRAINCHECK_CTL_RENDER_VIOLATION_H_
#define TRAINCHECK_CTL_RENDER_VIOLATION_H_

#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {id, run, attempt, invariant_id, relation, text, grade, first_step,
// last_step, count, ranks, apis, variables, sites, status, incident,
// first_seen, seen}
Json ViolationRowJson(const v1::Violation& violation);

// The row and {expected, evidence, why, fix, reference}.
Json ViolationDetailJson(const v1::Violation& violation);

std::string ViolationsTable(const std::vector<v1::Violation>& violations);

std::string ViolationDetailText(const v1::Violation& violation);

// "step 12 ranks 0,1 Consistent: TEXT (train.py:41)", without a newline.
std::string ViolationHeadline(const v1::Violation& violation);

// A line of `violations watch`: time, id and run before the headline.
std::string ViolationLine(const v1::Violation& violation);

// What `run` prints: the headline behind "traincheck: VIOLATION " (or "advice
// ") and indented lines with what was expected, seen and found as evidence.
std::string ViolationBlock(const v1::Violation& violation);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_VIOLATION_H_
