#include "ctl/testing/fake_control.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/credentials.h"

namespace traincheck::ctl {
namespace {

using grpc::ServerContext;
using grpc::ServerWriter;
using grpc::Status;
using grpc::StatusCode;

template <typename Message>
void WriteAll(const std::vector<Message>& messages,
              ServerWriter<Message>* writer) {
  for (const Message& message : messages) writer->Write(message);
}

const v1::Run* FindRun(const FakeData& data, const std::string& id) {
  for (const v1::Run& run : data.runs) {
    if (run.id() == id) return &run;
  }
  return nullptr;
}

const v1::SetDetail* FindSet(const FakeData& data, const std::string& name) {
  for (const v1::SetDetail& set : data.sets) {
    if (set.summary().name() == name) return &set;
  }
  return nullptr;
}

std::vector<v1::Violation> ViolationsOf(const FakeData& data,
                                        const std::string& run) {
  std::vector<v1::Violation> violations;
  for (const v1::Violation& violation : data.violations) {
    if (run.empty() || violation.run() == run) violations.push_back(violation);
  }
  return violations;
}

Status NotFound(const std::string& what) {
  return Status(StatusCode::NOT_FOUND, "no " + what);
}

}  // namespace

FakeControl::FakeControl() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", *MakeServerCredentials("127.0.0.1:0"),
                           &port);
  // As the daemon: pings of a client whose call is quiet are no attack.
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) std::abort();
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeControl::~FakeControl() {
  server_->Shutdown(std::chrono::system_clock::now());
}

void FakeControl::Edit(const std::function<void(FakeData&)>& edit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  edit(data_);
}

FakeData FakeControl::Copy() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return data_;
}

Status FakeControl::GetStatus(ServerContext*, const v1::GetStatusRequest*,
                              v1::ServerStatus* reply) {
  const FakeData data = Copy();
  *reply = data.status;
  return data.failure;
}

Status FakeControl::ListRuns(ServerContext*, const v1::ListRunsRequest* request,
                             ServerWriter<v1::Run>* writer) {
  Edit([&](FakeData& data) { data.last_list = *request; });
  const FakeData data = Copy();
  WriteAll(data.runs, writer);
  return data.failure;
}

Status FakeControl::GetRun(ServerContext*, const v1::GetRunRequest* request,
                           v1::Run* reply) {
  const FakeData data = Copy();
  const v1::Run* run = FindRun(data, request->run());
  if (run != nullptr) {
    *reply = *run;
  } else if (data.every_run_exists) {
    reply->set_id(request->run());
  } else {
    return NotFound("run " + request->run());
  }
  return data.failure;
}

Status FakeControl::Infer(ServerContext* context,
                          const v1::InferRequest* request,
                          ServerWriter<v1::InferProgress>* writer) {
  Edit([&](FakeData& data) { data.last_infer = *request; });
  const FakeData data = Copy();
  WriteAll(data.infer, writer);
  while (data.infer_hangs && !context->IsCancelled()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return data.failure;
}

Status FakeControl::StartInference(ServerContext*,
                                   const v1::InferRequest* request,
                                   v1::Job* reply) {
  Edit([&](FakeData& data) { data.last_infer = *request; });
  const FakeData data = Copy();
  if (!data.jobs.empty()) *reply = data.jobs[0];
  return data.failure;
}

Status FakeControl::ListJobs(ServerContext*, const v1::ListJobsRequest*,
                             ServerWriter<v1::Job>* writer) {
  const FakeData data = Copy();
  WriteAll(data.jobs, writer);
  return data.failure;
}

Status FakeControl::GetJob(ServerContext*, const v1::GetJobRequest* request,
                           v1::Job* reply) {
  const FakeData data = Copy();
  for (const v1::Job& job : data.jobs) {
    if (job.id() != request->id()) continue;
    *reply = job;
    return data.failure;
  }
  return NotFound("job " + request->id());
}

Status FakeControl::CancelJob(ServerContext* context,
                              const v1::CancelJobRequest* request,
                              v1::Job* reply) {
  Edit([&](FakeData& data) {
    for (v1::Job& job : data.jobs) {
      if (job.id() != request->id()) continue;
      job.set_status(v1::JOB_STATUS_CANCELLED);
    }
  });
  v1::GetJobRequest get;
  get.set_id(request->id());
  return GetJob(context, &get, reply);
}

Status FakeControl::CheckRun(ServerContext*, const v1::CheckRunRequest* request,
                             ServerWriter<v1::CheckRunProgress>* writer) {
  Edit([&](FakeData& data) { data.last_check = *request; });
  const FakeData data = Copy();
  if (!data.failure.ok()) return data.failure;
  v1::CheckRunProgress progress;
  *progress.mutable_result() = data.check_result;
  progress.mutable_result()->set_run(request->run());
  progress.mutable_result()->set_set(request->set());
  writer->Write(progress);
  return Status::OK;
}

Status FakeControl::ListSets(ServerContext*, const v1::ListSetsRequest*,
                             ServerWriter<v1::SetSummary>* writer) {
  const FakeData data = Copy();
  for (const v1::SetDetail& set : data.sets) writer->Write(set.summary());
  return data.failure;
}

Status FakeControl::GetSet(ServerContext*, const v1::GetSetRequest* request,
                           v1::SetDetail* reply) {
  const FakeData data = Copy();
  const v1::SetDetail* set = FindSet(data, request->name());
  if (set == nullptr) return NotFound("set " + request->name());
  *reply = *set;
  return data.failure;
}

Status FakeControl::ImportSet(ServerContext*,
                              const v1::ImportSetRequest* request,
                              v1::SetSummary* reply) {
  Edit([&](FakeData& data) { data.last_import = *request; });
  reply->set_name(request->name());
  reply->set_version(1);
  return Copy().failure;
}

Status FakeControl::GetRunPlan(ServerContext*, const v1::GetRunPlanRequest*,
                               v1::RunPlan* reply) {
  const FakeData data = Copy();
  *reply = data.run_plan;
  return data.failure;
}

Status FakeControl::ChangeRunPlan(ServerContext*,
                                  const v1::ChangeRunPlanRequest* request,
                                  v1::RunPlan* reply) {
  Edit([request](FakeData& data) { data.last_plan = *request; });
  const FakeData data = Copy();
  *reply = data.run_plan;
  return data.failure;
}

Status FakeControl::GetSetPlan(ServerContext*,
                               const v1::GetSetPlanRequest* request,
                               v1::SetPlan* reply) {
  const FakeData data = Copy();
  *reply = data.set_plan;
  reply->set_name(request->name());
  return data.failure;
}

Status FakeControl::GetInvariant(ServerContext*,
                                 const v1::GetInvariantRequest* request,
                                 v1::Invariant* reply) {
  Edit([](FakeData& data) { ++data.invariant_calls; });
  const FakeData data = Copy();
  std::this_thread::sleep_for(data.invariant_takes);
  if (!data.invariant_failure.ok()) return data.invariant_failure;
  for (const v1::SetDetail& set : data.sets) {
    for (const v1::Invariant& invariant : set.invariants()) {
      if (invariant.id() != request->id()) continue;
      *reply = invariant;
      return data.failure;
    }
  }
  return NotFound("invariant " + request->id());
}

Status FakeControl::ListViolations(ServerContext*,
                                   const v1::ListViolationsRequest* request,
                                   ServerWriter<v1::Violation>* writer) {
  const FakeData data = Copy();
  if (!request->run().empty() && FindRun(data, request->run()) == nullptr) {
    return NotFound("run " + request->run());
  }
  WriteAll(ViolationsOf(data, request->run()), writer);
  return data.failure;
}

Status FakeControl::GetViolation(ServerContext*,
                                 const v1::GetViolationRequest* request,
                                 v1::Violation* reply) {
  const FakeData data = Copy();
  for (const v1::Violation& violation : data.violations) {
    if (violation.id() != request->id()) continue;
    *reply = violation;
    return data.failure;
  }
  return NotFound("violation " + request->id());
}

Status FakeControl::WatchViolations(ServerContext* context,
                                    const v1::WatchViolationsRequest* request,
                                    ServerWriter<v1::Violation>* writer) {
  size_t sent = 0;
  while (!context->IsCancelled()) {
    const FakeData data = Copy();
    if (!data.failure.ok()) return data.failure;
    const auto violations = ViolationsOf(data, request->run());
    for (; sent < violations.size(); ++sent) writer->Write(violations[sent]);
    if (!request->run().empty()) {
      const v1::Run* run = FindRun(data, request->run());
      // A run that is not there yet is waited for, as by the daemon.
      if (run != nullptr && run->status() == v1::RUN_STATUS_ENDED) {
        return Status::OK;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Status::CANCELLED;
}

}  // namespace traincheck::ctl
