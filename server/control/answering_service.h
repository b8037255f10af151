// What services share: results and errors as gRPC wants them.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_CONTROL_ANSWERING_SERVICE_H_
#define TRAINCHECK_SERVER_CONTROL_ANSWERING_SERVICE_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/control/call_limit.h"
#include "server/status/status_for_service.h"

namespace traincheck::server {

// The result, or its error.
template <typename Message>
grpc::Status Answer(absl::StatusOr<Message> result, Message* response) {
  if (!result.ok()) return ToGrpc(result.status());
  *response = *std::move(result);
  return grpc::Status::OK;
}

// `ask` puts the answer together once there is a place among the lists.
template <typename Message, typename Ask>
grpc::Status AnswerAll(CallLimit* lists, Ask ask,
                       grpc::ServerWriter<Message>* writer) {
  const absl::StatusOr<CallLimit::Slot> slot = lists->Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  const absl::StatusOr<std::vector<Message>> results = ask();
  if (!results.ok()) return ToGrpc(results.status());
  for (const Message& message : *results) {
    if (!writer->Write(message)) break;  // the client has left
  }
  return grpc::Status::OK;
}

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_ANSWERING_SERVICE_H_
