// Is this something that can be learned from? Errors say what is wrong and what
// to do.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_JOBS_REQUEST_CHECK_H_
#define TRAINCHECK_SERVER_JOBS_REQUEST_CHECK_H_

#include "absl/status/status.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/runs/registry.h"

namespace traincheck::server {

// ResourceExhausted names the field that is over its limit, InvalidArgument
// the value that makes no sense.
[[nodiscard]] absl::Status CheckRequest(const v1::InferRequest& request);

// FailedPrecondition: nothing of the run is stored, or its ranks do not agree
// about the world that they are in.
[[nodiscard]] absl::Status CheckContent(const RunView& run);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_REQUEST_CHECK_H_
