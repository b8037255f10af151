// Capture plans: `runs plan` and `sets plan`.
#ifndef TRAINCHECK_CTL_RENDER_PLAN_H_
#define TRAINCHECK_CTL_RENDER_PLAN_H_

#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {run, versions: [{version, from_step, origin, made}], ranks: [{attempt, rank,
// version, after_step}], plan}; plan is null where the run has none.
Json RunPlanJson(const v1::RunPlan& plan);
std::string RunPlanText(const v1::RunPlan& plan);

// The plan itself, fit for a file.
std::string SetPlanText(const v1::SetPlan& plan);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_PLAN_H_
