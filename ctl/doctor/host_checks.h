// What the agent needs of this host and its limits.
#ifndef TRAINCHECK_CTL_DOCTOR_HOST_CHECKS_H_
#define TRAINCHECK_CTL_DOCTOR_HOST_CHECKS_H_

#include "ctl/doctor/finding.h"

namespace traincheck::ctl {

Finding CheckSharedMemory();
Finding CheckLimits();
// The folder that relays would spool into, as they choose it.
Finding CheckSpool();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_DOCTOR_HOST_CHECKS_H_
