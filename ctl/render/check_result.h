// What `check` found.
#ifndef TRAINCHECK_CTL_RENDER_CHECK_RESULT_H_
#define TRAINCHECK_CTL_RENDER_CHECK_RESULT_H_

#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {run, set, version, verdicts: [{invariant_id, relation, text, verdict:
// "pass"|"partly"|"violated"|"unknown"|"no_occasion", reason, share (of its
// windows, those that were decided)}], coverage: as check of `runs show`,
// violations: as `violations show`, incidents: as `violations list
// --by-incident`}
Json CheckResultJson(const v1::CheckResult& result);

// "NOTHING CHECKED" first where nothing was decided; the coverage, then the
// violations as `violations list` has them.
std::string CheckResultText(const v1::CheckResult& result);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_CHECK_RESULT_H_
