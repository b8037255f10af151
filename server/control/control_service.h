// gRPC's side of control: each call asks Queries, the board or the jobs and
// writes what they say.
//
// Threads: gRPC calls on threads of its own, one for each open call; limits.h
// bounds these. Stop on any thread.
#ifndef TRAINCHECK_SERVER_CONTROL_CONTROL_SERVICE_H_
#define TRAINCHECK_SERVER_CONTROL_CONTROL_SERVICE_H_

#include <atomic>

#include "proto/traincheck/v1/control.grpc.pb.h"
#include "server/access/gate_service.h"
#include "server/access/sight.h"
#include "server/checking/stored_check.h"
#include "server/checking/violation_board.h"
#include "server/control/call_limit.h"
#include "server/control/limits.h"
#include "server/control/queries.h"
#include "server/feedback/violation_view.h"
#include "server/jobs/inference_jobs.h"
#include "server/plans/run_plans.h"
#include "server/retention/run_cleaner.h"
#include "server/runs/registry.h"
#include "server/sets/rule_policy.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

class ControlService final : public v1::Control::Service {
 public:
  // All must outlive the service.
  struct Dependencies {
    Store* store;
    const Queries* queries;
    const Registry* registry;
    SetCatalog* sets;
    RulePolicy* policy;
    ViolationBoard* board;
    const ViolationView* violations;
    InferenceJobs* jobs;
    RunCleaner* cleaner;
    RunPlans* plans;
    const StoredChecks* checks;
    const Gate* gate;
  };

  explicit ControlService(const Dependencies& dependencies)
      : use_(dependencies) {}

  // Ends the calls that wait.
  void Stop();

  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest* request,
                         v1::ServerStatus* response) override;
  grpc::Status ListRuns(grpc::ServerContext* context,
                        const v1::ListRunsRequest* request,
                        grpc::ServerWriter<v1::Run>* writer) override;
  grpc::Status GetRun(grpc::ServerContext* context,
                      const v1::GetRunRequest* request,
                      v1::Run* response) override;
  grpc::Status DeleteRun(grpc::ServerContext* context,
                         const v1::DeleteRunRequest* request,
                         v1::DeleteRunReply* response) override;
  grpc::Status KeepRun(grpc::ServerContext* context,
                       const v1::KeepRunRequest* request,
                       v1::Run* response) override;
  grpc::Status GetRunPlan(grpc::ServerContext* context,
                          const v1::GetRunPlanRequest* request,
                          v1::RunPlan* response) override;
  grpc::Status ChangeRunPlan(grpc::ServerContext* context,
                             const v1::ChangeRunPlanRequest* request,
                             v1::RunPlan* response) override;
  grpc::Status Backup(grpc::ServerContext* context,
                      const v1::BackupRequest* request,
                      v1::BackupReply* response) override;
  grpc::Status Infer(grpc::ServerContext* context,
                     const v1::InferRequest* request,
                     grpc::ServerWriter<v1::InferProgress>* writer) override;
  grpc::Status StartInference(grpc::ServerContext* context,
                              const v1::InferRequest* request,
                              v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context,
                        const v1::ListJobsRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override;
  grpc::Status GetJob(grpc::ServerContext* context,
                      const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context,
                         const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::Status CheckRun(
      grpc::ServerContext* context, const v1::CheckRunRequest* request,
      grpc::ServerWriter<v1::CheckRunProgress>* writer) override;
  grpc::Status ListSets(grpc::ServerContext* context,
                        const v1::ListSetsRequest* request,
                        grpc::ServerWriter<v1::SetSummary>* writer) override;
  grpc::Status GetSet(grpc::ServerContext* context,
                      const v1::GetSetRequest* request,
                      v1::SetDetail* response) override;
  grpc::Status ImportSet(grpc::ServerContext* context,
                         const v1::ImportSetRequest* request,
                         v1::SetSummary* response) override;
  grpc::Status GetSetInParts(grpc::ServerContext* context,
                             const v1::GetSetRequest* request,
                             grpc::ServerWriter<v1::SetPart>* writer) override;
  grpc::Status ImportSetInParts(grpc::ServerContext* context,
                                grpc::ServerReader<v1::ImportSetPart>* reader,
                                v1::SetSummary* response) override;
  grpc::Status GetSetPlan(grpc::ServerContext* context,
                          const v1::GetSetPlanRequest* request,
                          v1::SetPlan* response) override;
  grpc::Status DeleteSet(grpc::ServerContext* context,
                         const v1::DeleteSetRequest* request,
                         v1::DeleteSetReply* response) override;
  grpc::Status DisableRule(grpc::ServerContext* context,
                           const v1::DisableRuleRequest* request,
                           v1::DisabledRule* response) override;
  grpc::Status EnableRule(grpc::ServerContext* context,
                          const v1::EnableRuleRequest* request,
                          v1::DisabledRule* response) override;
  grpc::Status ListDisabledRules(
      grpc::ServerContext* context, const v1::ListDisabledRulesRequest* request,
      grpc::ServerWriter<v1::DisabledRule>* writer) override;
  grpc::Status DeploySets(grpc::ServerContext* context,
                          const v1::DeploySetsRequest* request,
                          v1::Deployment* response) override;
  grpc::Status ListDeployments(
      grpc::ServerContext* context, const v1::ListDeploymentsRequest* request,
      grpc::ServerWriter<v1::Deployment>* writer) override;
  grpc::Status GetSelection(grpc::ServerContext* context,
                            const v1::GetSelectionRequest* request,
                            v1::Selection* response) override;
  grpc::Status GetInvariant(grpc::ServerContext* context,
                            const v1::GetInvariantRequest* request,
                            v1::Invariant* response) override;
  grpc::Status ListViolations(
      grpc::ServerContext* context, const v1::ListViolationsRequest* request,
      grpc::ServerWriter<v1::Violation>* writer) override;
  grpc::Status GetViolation(grpc::ServerContext* context,
                            const v1::GetViolationRequest* request,
                            v1::Violation* response) override;
  grpc::Status WatchViolations(
      grpc::ServerContext* context, const v1::WatchViolationsRequest* request,
      grpc::ServerWriter<v1::Violation>* writer) override;

 private:
  Sight SightOf(const grpc::ServerContext& context) const {
    return Sight(use_.gate->CallerOf(context), use_.registry);
  }
  // The runs that a caller wants to learn from are those that it sees.
  absl::StatusOr<v1::Job> StartJob(const grpc::ServerContext& context,
                                   const v1::InferRequest& request);
  absl::StatusOr<v1::Job> FindJob(const grpc::ServerContext& context,
                                  const std::string& id) const;
  // Adds what people have said of what a check has found.
  absl::Status Annotate(v1::CheckResult* result) const;

  const Dependencies use_;
  CallLimit waiting_{
      "calls that watch or wait",
      kMaxWaitingCalls,
      {.reserve = kWaitingCallsForOthers, .each = kWaitingCallsForEach}};
  CallLimit lists_{"calls that list", kMaxListCalls};
  CallLimit imports_{"imports", kMaxImportCalls};
  CallLimit checks_{"checks of stored runs", kMaxCheckCalls};
  std::atomic<bool> stopping_ = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_CONTROL_SERVICE_H_
