// A control service with canned data on a port that the system chose.
//
// Threads: all methods may be called from any thread.
#ifndef TRAINCHECK_CTL_TESTING_FAKE_CONTROL_H_
#define TRAINCHECK_CTL_TESTING_FAKE_CONTROL_H_

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "proto/traincheck/v1/control.grpc.pb.h"

namespace traincheck::ctl {

// What the service answers with and what it was last asked.
struct FakeData {
  v1::ServerStatus status;
  std::vector<v1::Run> runs;
  // Whatever its id.
  bool every_run_exists = false;
  std::vector<v1::SetDetail> sets;
  std::vector<v1::Violation> violations;
  std::vector<v1::InferProgress> infer;
  // Infer then says no more until its client leaves.
  bool infer_hangs = false;
  std::vector<v1::Job> jobs;
  // Answer to every call, if it is an error.
  grpc::Status failure;

  // GetInvariant: how often it was called, how long it takes, and its answer
  // if that is an error.
  int invariant_calls = 0;
  std::chrono::milliseconds invariant_takes{0};
  grpc::Status invariant_failure;

  v1::ListRunsRequest last_list;
  v1::InferRequest last_infer;
  v1::ImportSetRequest last_import;
  v1::ChangeRunPlanRequest last_plan;
  v1::CheckRunRequest last_check;
  v1::CheckResult check_result;
  // Of every run, and of every set.
  v1::RunPlan run_plan;
  v1::SetPlan set_plan;
};

class FakeControl final : public v1::Control::Service {
 public:
  FakeControl();
  ~FakeControl() override;

  const std::string& address() const { return address_; }

  void Edit(const std::function<void(FakeData&)>& edit);

  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest* request,
                         v1::ServerStatus* reply) override;
  grpc::Status ListRuns(grpc::ServerContext* context,
                        const v1::ListRunsRequest* request,
                        grpc::ServerWriter<v1::Run>* writer) override;
  grpc::Status GetRun(grpc::ServerContext* context,
                      const v1::GetRunRequest* request,
                      v1::Run* reply) override;
  grpc::Status Infer(grpc::ServerContext* context,
                     const v1::InferRequest* request,
                     grpc::ServerWriter<v1::InferProgress>* writer) override;
  // Answers with the first job.
  grpc::Status StartInference(grpc::ServerContext* context,
                              const v1::InferRequest* request,
                              v1::Job* reply) override;
  grpc::Status ListJobs(grpc::ServerContext* context,
                        const v1::ListJobsRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override;
  grpc::Status GetJob(grpc::ServerContext* context,
                      const v1::GetJobRequest* request,
                      v1::Job* reply) override;
  grpc::Status CancelJob(grpc::ServerContext* context,
                         const v1::CancelJobRequest* request,
                         v1::Job* reply) override;
  grpc::Status CheckRun(
      grpc::ServerContext* context, const v1::CheckRunRequest* request,
      grpc::ServerWriter<v1::CheckRunProgress>* writer) override;
  grpc::Status ListSets(grpc::ServerContext* context,
                        const v1::ListSetsRequest* request,
                        grpc::ServerWriter<v1::SetSummary>* writer) override;
  grpc::Status GetSet(grpc::ServerContext* context,
                      const v1::GetSetRequest* request,
                      v1::SetDetail* reply) override;
  grpc::Status ImportSet(grpc::ServerContext* context,
                         const v1::ImportSetRequest* request,
                         v1::SetSummary* reply) override;
  grpc::Status GetRunPlan(grpc::ServerContext* context,
                          const v1::GetRunPlanRequest* request,
                          v1::RunPlan* reply) override;
  grpc::Status ChangeRunPlan(grpc::ServerContext* context,
                             const v1::ChangeRunPlanRequest* request,
                             v1::RunPlan* reply) override;
  grpc::Status GetSetPlan(grpc::ServerContext* context,
                          const v1::GetSetPlanRequest* request,
                          v1::SetPlan* reply) override;
  grpc::Status GetInvariant(grpc::ServerContext* context,
                            const v1::GetInvariantRequest* request,
                            v1::Invariant* reply) override;
  grpc::Status ListViolations(
      grpc::ServerContext* context, const v1::ListViolationsRequest* request,
      grpc::ServerWriter<v1::Violation>* writer) override;
  grpc::Status GetViolation(grpc::ServerContext* context,
                            const v1::GetViolationRequest* request,
                            v1::Violation* reply) override;
  grpc::Status WatchViolations(
      grpc::ServerContext* context, const v1::WatchViolationsRequest* request,
      grpc::ServerWriter<v1::Violation>* writer) override;

 private:
  FakeData Copy();

  std::mutex mutex_;
  FakeData data_;  // guarded by mutex_
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TESTING_FAKE_CONTROL_H_
