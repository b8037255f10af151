// What `compare` found.
#ifndef TRAINCHECK_CTL_RENDER_COMPARISON_H_
#define TRAINCHECK_CTL_RENDER_COMPARISON_H_

#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/compare.pb.h"

namespace traincheck::ctl {

// Was anything compared at all?
bool WasCompared(const v1::CompareRunsResult& result);
// Was a difference found?
bool Differs(const v1::CompareRunsResult& result);

// {a: {run, attempt}, b: the same, compared: true|false, different, before:
// [difference], first: difference or null, also: [difference], counts: {rung:
// number}, variables_first, variables_last: {step, compared, different} or
// null, steps_behind, steps_behind_different, ranks: [{rank, steps_a, steps_b,
// first_step}], compared_counts: {...}, not_compared: [{what, why, count,
// examples}]}; a difference is {step, after_last_step, rung, what, a, b,
// site_a, site_b, ranks}.
Json ComparisonJson(const v1::CompareRunsResult& result);

// The first difference, what followed, what was compared and what was not.
std::string ComparisonText(const v1::CompareRunsResult& result);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_COMPARISON_H_
