// Whether trainings would be recorded here: the agent's files, the Python that
// trains, torch, and a relay that starts.
#ifndef TRAINCHECK_CTL_DOCTOR_AGENT_CHECKS_H_
#define TRAINCHECK_CTL_DOCTOR_AGENT_CHECKS_H_

#include <string>
#include <vector>

#include "ctl/doctor/finding.h"

namespace traincheck::ctl {

// The files of the agent beside `library`, the preloaded one.
Finding CheckAgentFiles(const std::string& library);

// Preloads `library` into `python` and lets it train two steps without a
// server: what it records has to come to lie in a spool folder.
std::vector<Finding> CheckPython(const std::string& library,
                                 const std::string& python);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_DOCTOR_AGENT_CHECKS_H_
