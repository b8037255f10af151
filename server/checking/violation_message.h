// A violation that a checker found, as clients are sent it and the store keeps
// it.
//
// Threads: pure function.
#ifndef TRAINCHECK_SERVER_CHECKING_VIOLATION_MESSAGE_H_
#define TRAINCHECK_SERVER_CHECKING_VIOLATION_MESSAGE_H_

#include "checker/checker.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::server {

v1::Violation ToApi(const Violation& violation);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_VIOLATION_MESSAGE_H_
