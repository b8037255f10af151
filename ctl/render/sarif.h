// What `preflight` found in the Static Analysis Results Interchange Format
// (SARIF 2.1.0), which code review shows at the lines concerned.
//
// Threads: pure.
#ifndef TRAINCHECK_CTL_RENDER_SARIF_H_
#define TRAINCHECK_CTL_RENDER_SARIF_H_

#include "ctl/render/json.h"
#include "ctl/render/preflight.h"

namespace traincheck::ctl {

// A result for each finding, at level error (alerts) or note (advice), with its
// sites as locations, and the rules that they are of.
Json SarifReport(const PreflightReport& report);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_SARIF_H_
