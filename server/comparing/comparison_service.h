// gRPC's side of the comparison of runs.
//
// Threads: gRPC calls on threads of its own, one for each open call; limits.h
// bounds these. Stop on any thread.
#ifndef TRAINCHECK_SERVER_COMPARING_COMPARISON_SERVICE_H_
#define TRAINCHECK_SERVER_COMPARING_COMPARISON_SERVICE_H_

#include <atomic>

#include "proto/traincheck/v1/compare.grpc.pb.h"
#include "server/access/gate_service.h"
#include "server/access/sight.h"
#include "server/comparing/stored_comparison.h"
#include "server/control/call_limit.h"
#include "server/control/limits.h"

namespace traincheck::server {

class ComparisonService final : public v1::Comparison::Service {
 public:
  // All must outlive the service.
  ComparisonService(const StoredComparisons* comparisons,
                    const Registry* registry, const Gate* gate)
      : comparisons_(*comparisons), registry_(*registry), gate_(*gate) {}

  // Ends the comparisons that are at work.
  void Stop() { stopping_ = true; }

  grpc::Status CompareRuns(
      grpc::ServerContext* context, const v1::CompareRunsRequest* request,
      grpc::ServerWriter<v1::CompareRunsProgress>* writer) override;

 private:
  const StoredComparisons& comparisons_;
  const Registry& registry_;
  const Gate& gate_;
  CallLimit limit_{"comparisons of runs", kMaxCompareCalls};
  std::atomic<bool> stopping_ = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_COMPARING_COMPARISON_SERVICE_H_
