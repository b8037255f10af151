// gRPC's side of the zooms.
//
// Threads: gRPC calls on threads of its own, one for each open call; limits.h
// bounds these. Stop on any thread.
#ifndef TRAINCHECK_SERVER_ZOOM_ZOOM_SERVICE_H_
#define TRAINCHECK_SERVER_ZOOM_ZOOM_SERVICE_H_

#include <atomic>

#include "proto/traincheck/v1/zoom.grpc.pb.h"
#include "server/control/call_limit.h"
#include "server/control/limits.h"
#include "server/zoom/zoom_reports.h"

namespace traincheck::server {

class ZoomService final : public v1::Zoom::Service {
 public:
  // `reports` must outlive the service.
  explicit ZoomService(const ZoomReports* reports) : reports_(*reports) {}

  // Ends the reports that are at work.
  void Stop() { stopping_ = true; }

  grpc::Status ShowZoom(grpc::ServerContext* context,
                        const v1::ShowZoomRequest* request,
                        v1::ZoomReport* reply) override;

 private:
  const ZoomReports& reports_;
  CallLimit limit_{"reports of zooms", kMaxZoomCalls};
  std::atomic<bool> stopping_ = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ZOOM_ZOOM_SERVICE_H_
