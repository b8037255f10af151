// gRPC's side of feedback: each call asks the marks, the silences, the review
// or the alert caller and writes what they say.
//
// Threads: gRPC calls on threads of its own, one for each open call.
#ifndef TRAINCHECK_SERVER_CONTROL_FEEDBACK_SERVICE_H_
#define TRAINCHECK_SERVER_CONTROL_FEEDBACK_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/traincheck/v1/feedback.grpc.pb.h"
#include "server/access/gate_service.h"
#include "server/access/sight.h"
#include "server/alerting/alert_caller.h"
#include "server/control/call_limit.h"
#include "server/control/limits.h"
#include "server/feedback/marks.h"
#include "server/feedback/rule_review.h"
#include "server/feedback/silences.h"
#include "server/feedback/violation_view.h"
#include "server/runs/registry.h"
#include "server/sets/rule_policy.h"

namespace traincheck::server {

class FeedbackService final : public v1::Feedback::Service {
 public:
  // All must outlive the service.
  struct Dependencies {
    const Registry* registry;
    const ViolationView* violations;
    Marks* marks;
    Silences* silences;
    RuleReview* review;
    RulePolicy* policy;
    const AlertCaller* caller;
    const Gate* gate;
  };

  explicit FeedbackService(const Dependencies& dependencies)
      : use_(dependencies) {}

  // Ends calls that read for long.
  void Stop() { use_.review->Stop(); }

  grpc::Status MarkViolation(grpc::ServerContext* context,
                             const v1::MarkViolationRequest* request,
                             v1::MarkViolationReply* response) override;
  grpc::Status ListMarks(grpc::ServerContext* context,
                         const v1::ListMarksRequest* request,
                         grpc::ServerWriter<v1::Mark>* writer) override;
  grpc::Status AddSilence(grpc::ServerContext* context,
                          const v1::Silence* request,
                          v1::Silence* response) override;
  grpc::Status RemoveSilence(grpc::ServerContext* context,
                             const v1::RemoveSilenceRequest* request,
                             v1::Silence* response) override;
  grpc::Status ListSilences(grpc::ServerContext* context,
                            const v1::ListSilencesRequest* request,
                            grpc::ServerWriter<v1::Silence>* writer) override;
  grpc::Status ReviewSet(grpc::ServerContext* context,
                         const v1::ReviewSetRequest* request,
                         v1::SetReview* response) override;
  grpc::Status GetRuleRecord(grpc::ServerContext* context,
                             const v1::GetRuleRecordRequest* request,
                             v1::RuleRecord* response) override;
  grpc::Status GetAlertCalls(grpc::ServerContext* context,
                             const v1::GetAlertCallsRequest* request,
                             v1::AlertCalls* response) override;

 private:
  Sight SightOf(const grpc::ServerContext& context) const {
    return Sight(use_.gate->CallerOf(context), use_.registry);
  }
  absl::StatusOr<v1::MarkViolationReply> Mark(
      const v1::MarkViolationRequest& request, Sight sight);
  absl::StatusOr<v1::RuleRecord> RecordFor(const std::string& violation,
                                           Sight sight) const;
  // What the marks of the owner of `run` say against rules by now holds for the
  // owner's next runs. One review at a time.
  void DemoteAnew(const std::string& run);
  absl::StatusOr<std::vector<v1::Mark>> MarksOf(const std::string& run,
                                                Sight sight) const;
  absl::StatusOr<std::vector<v1::Silence>> SilencesAndWhatTheyCover(
      Sight sight) const;

  const Dependencies use_;
  CallLimit lists_{"calls that list", kMaxListCalls};
  std::atomic<uint64_t> marks_ = 0;  // since the start
  absl::Mutex reviewing_;
  // By owner: `marks_` as the last review that succeeded found it.
  std::map<std::string, uint64_t> reviewed_ ABSL_GUARDED_BY(reviewing_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_FEEDBACK_SERVICE_H_
