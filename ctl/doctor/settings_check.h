// Whether the settings that a training started here would have let the agent
// record (docs/configuration.md).
#ifndef TRAINCHECK_CTL_DOCTOR_SETTINGS_CHECK_H_
#define TRAINCHECK_CTL_DOCTOR_SETTINGS_CHECK_H_

#include "ctl/doctor/finding.h"

namespace traincheck::ctl {

// `environment`: "NAME=value", a null pointer at the end. Fails for a mistake
// in the environment or in the file that it names, for a plan that is not one,
// and where the agent is switched off.
Finding CheckSettings(const char* const* environment);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_DOCTOR_SETTINGS_CHECK_H_
