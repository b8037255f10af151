// Whether a file is a capture plan, before a training is started that every
// process of would leave unrecorded because of it.
#ifndef TRAINCHECK_CTL_RUN_PLAN_CHECK_H_
#define TRAINCHECK_CTL_RUN_PLAN_CHECK_H_

#include <string>

namespace traincheck::ctl {

// "": the file at `path` is a plan that the agent takes. Else what is wrong in
// it, with file and place, and what to do.
[[nodiscard]] std::string WhatIsWrongWithPlan(const std::string& path);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_PLAN_CHECK_H_
