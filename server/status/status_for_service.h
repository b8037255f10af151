// An error as gRPC sends it.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_STATUS_STATUS_FOR_SERVICE_H_
#define TRAINCHECK_SERVER_STATUS_STATUS_FOR_SERVICE_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace traincheck::server {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STATUS_STATUS_FOR_SERVICE_H_
