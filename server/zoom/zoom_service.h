// gRPC's side of the zooms.
//
// Threads: gRPC calls on threads of its own, one for each open call; limits.h
// bounds these. Stop on any thread.
#ifndef TRAINCHECK_SERVER_ZOOM_ZOOM_SERVICE_H_
#define TRAINCHECK_SERVER_ZOOM_ZOOM_SERVICE_H_

#include <atomic>

#include "proto/traincheck/v1/zoom.grpc.pb.h"
#include "server/access/gate_service.h"
#include "server/control/call_limit.h"
#include "server/control/limits.h"
#include "server/runs/registry.h"
#include "server/zoom/zoom_reports.h"

namespace traincheck::server {

class ZoomService final : public v1::Zoom::Service {
 public:
  // All must outlive the service.
  ZoomService(const ZoomReports* reports, const Registry* registry,
              const Gate* gate)
      : reports_(*reports), registry_(*registry), gate_(*gate) {}

  // Ends the reports that are at work.
  void Stop() { stopping_ = true; }

  grpc::Status ShowZoom(grpc::ServerContext* context,
                        const v1::ShowZoomRequest* request,
                        v1::ZoomReport* reply) override;

 private:
  const ZoomReports& reports_;
  const Registry& registry_;
  const Gate& gate_;
  CallLimit limit_{"reports of zooms", kMaxZoomCalls};
  std::atomic<bool> stopping_ = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ZOOM_ZOOM_SERVICE_H_
