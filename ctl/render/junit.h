// What `preflight` found as a report of JUnit, which continuous integration
// shows as tests.
//
// Threads: pure.
#ifndef TRAINCHECK_CTL_RENDER_JUNIT_H_
#define TRAINCHECK_CTL_RENDER_JUNIT_H_

#include <string>

#include "ctl/render/preflight.h"

namespace traincheck::ctl {

// One testsuite with a testcase for each rule that was decided or violated, its
// class the rule's family. An alert is its failure, advice its system-out.
std::string JUnitReport(const PreflightReport& report);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_JUNIT_H_
