// States of processes and jobs in the words that users read, on the screen and
// in metrics.
//
// Threads: pure functions.
#ifndef TRAINCHECK_PROTO_STATE_NAMES_H_
#define TRAINCHECK_PROTO_STATE_NAMES_H_

#include <string>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck {

// "" for a value that this build does not know.
std::string StateName(v1::ProcessState state);
std::string JobStatusName(v1::JobStatus status);

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_STATE_NAMES_H_
