#include "server/zoom/zoom_service.h"

#include <utility>

#include "server/access/sight.h"
#include "server/status/status_for_service.h"

namespace traincheck::server {

grpc::Status ZoomService::ShowZoom(grpc::ServerContext* context,
                                   const v1::ShowZoomRequest* request,
                                   v1::ZoomReport* reply) {
  // A report reads its run from the first batch on, so few are made at once.
  const absl::StatusOr<CallLimit::Slot> slot = limit_.Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  // Runs of other owners are answered for as if they were not there.
  Sight sight(gate_.CallerOf(*context), &registry_);
  absl::StatusOr<v1::ZoomReport> report = reports_.Report(
      request->violation(),
      [&](const std::string& run) { return sight.SeesRun(run); },
      [&] { return !stopping_ && !context->IsCancelled(); });
  // Before the report, whose error would then say that the client has left.
  if (stopping_) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                        "traincheckd is stopping");
  }
  if (!report.ok()) return ToGrpc(report.status());
  *reply = *std::move(report);
  return grpc::Status::OK;
}

}  // namespace traincheck::server
