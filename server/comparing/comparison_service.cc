#include "server/comparing/comparison_service.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/status/status_for_service.h"

namespace traincheck::server {
namespace {

// How often the client is sent the progress.
constexpr absl::Duration kTellEvery = absl::Milliseconds(200);

}  // namespace

grpc::Status ComparisonService::CompareRuns(
    grpc::ServerContext* context, const v1::CompareRunsRequest* request,
    grpc::ServerWriter<v1::CompareRunsProgress>* writer) {
  // Before a place is taken: there are few, and they are for those who see both
  // runs.
  Sight sight(gate_.CallerOf(*context), &registry_);
  for (const std::string& run : {request->run_a(), request->run_b()}) {
    if (absl::Status seen = sight.CheckRun(run); !seen.ok()) {
      return ToGrpc(seen);
    }
  }
  const absl::StatusOr<CallLimit::Slot> slot = limit_.Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  v1::CompareRunsProgress progress;
  absl::Time told;
  // The comparison calls this with each pair of reads, and gives up where it
  // returns false.
  const auto tell = [&](double fraction) {
    if (stopping_ || context->IsCancelled()) return false;
    if (absl::Now() - told < kTellEvery) return true;
    told = absl::Now();
    progress.set_fraction(fraction);
    return writer->Write(progress);
  };
  absl::StatusOr<v1::CompareRunsResult> result =
      comparisons_.Compare(*request, tell);
  // Before the result, whose error would then say that the client has left.
  if (stopping_) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                        "traincheckd is stopping");
  }
  if (!result.ok()) return ToGrpc(result.status());
  progress.set_fraction(1);
  *progress.mutable_result() = *std::move(result);
  writer->Write(progress);
  return grpc::Status::OK;
}

}  // namespace traincheck::server
