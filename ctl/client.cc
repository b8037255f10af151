#include "ctl/client.h"

#include <optional>
#include <utility>

#include "ctl/channel.h"
#include "grpcpp/grpcpp.h"
#include "invariants/sets/set_ref.h"
#include "proto/traincheck/v1/access.grpc.pb.h"
#include "proto/traincheck/v1/compare.grpc.pb.h"
#include "proto/traincheck/v1/control.grpc.pb.h"
#include "proto/traincheck/v1/feedback.grpc.pb.h"
#include "proto/traincheck/v1/zoom.grpc.pb.h"

namespace traincheck::ctl {
namespace {

// Of a set that is sent in parts, and how much longer that may take than other
// answers: the daemon reads every rule.
constexpr size_t kPartBytes = 1 << 20;
constexpr int kTimesForSets = 12;

absl::Status ToAbsl(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // For callers a server that hangs and one that is not there are one case:
  // they say how to start or name another one.
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError("no answer in time");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

// The result that comes with the last message of a stream.
template <typename Result, typename Progress>
absl::StatusOr<Result> LastOf(grpc::ClientReader<Progress>* reader,
                              const std::function<void(double)>& on_progress) {
  std::optional<Result> result;
  Progress progress;
  while (reader->Read(&progress)) {
    on_progress(progress.fraction());
    if (progress.has_result()) result = progress.result();
  }
  if (absl::Status status = ToAbsl(reader->Finish()); !status.ok()) {
    return status;
  }
  if (!result) return absl::InternalError("the call ended without a result");
  return *std::move(result);
}

}  // namespace

struct Client::Impl {
  std::unique_ptr<v1::Control::Stub> stub;
  std::unique_ptr<v1::Comparison::Stub> comparison;
  std::unique_ptr<v1::Feedback::Stub> feedback;
  std::unique_ptr<v1::Zoom::Stub> zoom;
  std::unique_ptr<v1::Access::Stub> access;
  std::chrono::milliseconds answer_timeout;

  void SetDeadline(grpc::ClientContext* context, int times = 1) const {
    context->set_deadline(std::chrono::system_clock::now() +
                          times * answer_timeout);
  }

  // By the type of the method's class, so that Call and Collect serve methods
  // of all services. The argument is never looked at.
  v1::Control::Stub* StubOf(const v1::Control::Stub*) const {
    return stub.get();
  }
  v1::Feedback::Stub* StubOf(const v1::Feedback::Stub*) const {
    return feedback.get();
  }
  v1::Access::Stub* StubOf(const v1::Access::Stub*) const {
    return access.get();
  }

  template <typename Stub, typename Reply, typename Request>
  absl::StatusOr<Reply> Call(grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                          const Request&,
                                                          Reply*),
                             const Request& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    Reply reply;
    const Stub* const service = nullptr;
    absl::Status status =
        ToAbsl((StubOf(service)->*method)(&context, request, &reply));
    if (!status.ok()) return status;
    return reply;
  }

  template <typename Stub, typename Reply, typename Request>
  absl::StatusOr<std::vector<Reply>> Collect(
      std::unique_ptr<grpc::ClientReader<Reply>> (Stub::*method)(
          grpc::ClientContext*, const Request&),
      const Request& request, int times = 1) {
    grpc::ClientContext context;
    // For the stream as a whole: a server that sends a row now and then must
    // not hold a command for ever.
    SetDeadline(&context, times);
    const Stub* const service = nullptr;
    auto reader = (StubOf(service)->*method)(&context, request);
    std::vector<Reply> replies;
    Reply reply;
    while (reader->Read(&reply)) replies.push_back(std::move(reply));
    absl::Status status = ToAbsl(reader->Finish());
    if (!status.ok()) return status;
    return replies;
  }

  absl::StatusOr<v1::SetDetail> CollectSet(const v1::GetSetRequest& request) {
    absl::StatusOr<std::vector<v1::SetPart>> parts =
        Collect(&v1::Control::Stub::GetSetInParts, request, kTimesForSets);
    if (!parts.ok()) return parts.status();
    v1::SetDetail set;
    for (const v1::SetPart& part : *parts) {
      if (part.has_summary()) *set.mutable_summary() = part.summary();
      set.mutable_invariants()->MergeFrom(part.invariants());
      set.mutable_json()->append(part.json());
    }
    return set;
  }

  absl::StatusOr<v1::SetSummary> SendSet(const v1::ImportSetRequest& request) {
    grpc::ClientContext context;
    SetDeadline(&context, kTimesForSets);
    v1::SetSummary reply;
    auto writer = stub->ImportSetInParts(&context, &reply);
    v1::ImportSetPart part;
    part.set_name(request.name());
    size_t from = 0;
    do {
      part.set_json(request.json().substr(from, kPartBytes));
      from += kPartBytes;
      // What the daemon says then comes with Finish.
    } while (writer->Write(part) && from < request.json().size());
    writer->WritesDone();
    absl::Status status = ToAbsl(writer->Finish());
    if (!status.ok()) return status;
    return reply;
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Make(
    const std::string& address, std::chrono::milliseconds answer_timeout) {
  auto channel = MakeServerChannel(address);
  if (!channel.ok()) return channel.status();
  auto impl = std::make_unique<Impl>();
  impl->stub = v1::Control::NewStub(*channel);
  impl->comparison = v1::Comparison::NewStub(*channel);
  impl->feedback = v1::Feedback::NewStub(*channel);
  impl->zoom = v1::Zoom::NewStub(*channel);
  impl->access = v1::Access::NewStub(*channel);
  impl->answer_timeout = answer_timeout;
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

absl::StatusOr<v1::ServerStatus> Client::GetStatus() {
  return impl_->Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest());
}

absl::StatusOr<std::vector<v1::Run>> Client::ListRuns(
    v1::ListRunsRequest request) {
  // A list shows none of them, and a run may have thousands.
  request.set_without_processes(true);
  return impl_->Collect(&v1::Control::Stub::ListRuns, request);
}

absl::StatusOr<std::vector<v1::Run>> Client::ListRunsByPrefix(
    const std::string& id) {
  v1::ListRunsRequest request;
  request.set_id_prefix(id);
  return ListRuns(request);
}

absl::StatusOr<v1::Run> Client::GetRun(const std::string& run) {
  v1::GetRunRequest request;
  request.set_run(run);
  return impl_->Call(&v1::Control::Stub::GetRun, request);
}

absl::StatusOr<v1::DeleteRunReply> Client::DeleteRun(const std::string& run) {
  v1::DeleteRunRequest request;
  request.set_run(run);
  return impl_->Call(&v1::Control::Stub::DeleteRun, request);
}

absl::StatusOr<v1::Run> Client::KeepRun(const std::string& run, bool keep) {
  v1::KeepRunRequest request;
  request.set_run(run);
  request.set_keep(keep);
  return impl_->Call(&v1::Control::Stub::KeepRun, request);
}

absl::StatusOr<v1::RunPlan> Client::GetRunPlan(const std::string& run) {
  v1::GetRunPlanRequest request;
  request.set_run(run);
  return impl_->Call(&v1::Control::Stub::GetRunPlan, request);
}

absl::StatusOr<v1::RunPlan> Client::ChangeRunPlan(const std::string& run,
                                                  const std::string& json) {
  v1::ChangeRunPlanRequest request;
  request.set_run(run);
  request.set_json(json);
  return impl_->Call(&v1::Control::Stub::ChangeRunPlan, request);
}

absl::StatusOr<v1::BackupReply> Client::Backup(const std::string& folder) {
  v1::BackupRequest request;
  request.set_folder(folder);
  grpc::ClientContext context;
  v1::BackupReply reply;
  absl::Status status = ToAbsl(impl_->stub->Backup(&context, request, &reply));
  if (!status.ok()) return status;
  return reply;
}

absl::StatusOr<std::vector<v1::SetSummary>> Client::ListSets() {
  return impl_->Collect(&v1::Control::Stub::ListSets, v1::ListSetsRequest());
}

absl::StatusOr<v1::SetDetail> Client::GetSet(const std::string& name) {
  const absl::StatusOr<SetRef> set = ParseSetRef(name);
  if (!set.ok()) return set.status();
  v1::GetSetRequest request;
  request.set_name(set->name);
  request.set_version(set->version);
  absl::StatusOr<v1::SetDetail> detail = impl_->CollectSet(request);
  if (!absl::IsUnimplemented(detail.status())) return detail;
  return impl_->Call(&v1::Control::Stub::GetSet, request);  // an older daemon
}

absl::StatusOr<v1::SetPlan> Client::GetSetPlan(const std::string& name) {
  v1::GetSetPlanRequest request;
  request.set_name(name);
  return impl_->Call(&v1::Control::Stub::GetSetPlan, request);
}

absl::StatusOr<v1::SetSummary> Client::ImportSet(const std::string& name,
                                                 const std::string& json) {
  v1::ImportSetRequest request;
  request.set_name(name);
  request.set_json(json);
  absl::StatusOr<v1::SetSummary> set = impl_->SendSet(request);
  if (!absl::IsUnimplemented(set.status())) return set;
  return impl_->Call(&v1::Control::Stub::ImportSet, request);
}

absl::StatusOr<v1::DeleteSetReply> Client::DeleteSet(const std::string& set) {
  v1::DeleteSetRequest request;
  request.set_set(set);
  return impl_->Call(&v1::Control::Stub::DeleteSet, request);
}

absl::StatusOr<v1::DisabledRule> Client::DisableRule(
    const std::string& id, const std::string& reason) {
  v1::DisableRuleRequest request;
  request.set_rule(id);
  request.set_reason(reason);
  return impl_->Call(&v1::Control::Stub::DisableRule, request);
}

absl::StatusOr<v1::DisabledRule> Client::EnableRule(const std::string& id) {
  v1::EnableRuleRequest request;
  request.set_rule(id);
  return impl_->Call(&v1::Control::Stub::EnableRule, request);
}

absl::StatusOr<std::vector<v1::DisabledRule>> Client::ListDisabledRules() {
  return impl_->Collect(&v1::Control::Stub::ListDisabledRules,
                        v1::ListDisabledRulesRequest());
}

absl::StatusOr<v1::Deployment> Client::DeploySets(
    const std::string& experiment, const std::vector<std::string>& sets) {
  v1::DeploySetsRequest request;
  request.set_experiment(experiment);
  request.mutable_sets()->Assign(sets.begin(), sets.end());
  return impl_->Call(&v1::Control::Stub::DeploySets, request);
}

absl::StatusOr<std::vector<v1::Deployment>> Client::ListDeployments() {
  return impl_->Collect(&v1::Control::Stub::ListDeployments,
                        v1::ListDeploymentsRequest());
}

absl::StatusOr<std::string> Client::GetSelection(const std::string& experiment,
                                                 const std::string& asked) {
  v1::GetSelectionRequest request;
  request.set_experiment(experiment);
  request.set_asked(asked);
  const auto selection = impl_->Call(&v1::Control::Stub::GetSelection, request);
  // An older server decides nothing of itself.
  if (absl::IsUnimplemented(selection.status())) return asked;
  if (!selection.ok()) return selection.status();
  return selection->text();
}

absl::StatusOr<v1::Invariant> Client::GetInvariant(const std::string& id) {
  v1::GetInvariantRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Control::Stub::GetInvariant, request);
}

absl::StatusOr<std::vector<v1::Violation>> Client::ListViolations(
    const std::string& run) {
  v1::ListViolationsRequest request;
  request.set_run(run);
  return impl_->Collect(&v1::Control::Stub::ListViolations, request);
}

absl::StatusOr<v1::Violation> Client::GetViolation(const std::string& id) {
  v1::GetViolationRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Control::Stub::GetViolation, request);
}

absl::StatusOr<v1::MarkViolationReply> Client::MarkViolation(
    const v1::MarkViolationRequest& request) {
  return impl_->Call(&v1::Feedback::Stub::MarkViolation, request);
}

absl::StatusOr<std::vector<v1::Mark>> Client::ListMarks(
    const std::string& run) {
  v1::ListMarksRequest request;
  request.set_run(run);
  return impl_->Collect(&v1::Feedback::Stub::ListMarks, request);
}

absl::StatusOr<v1::Silence> Client::AddSilence(const v1::Silence& silence) {
  return impl_->Call(&v1::Feedback::Stub::AddSilence, silence);
}

absl::StatusOr<v1::Silence> Client::RemoveSilence(const std::string& id) {
  v1::RemoveSilenceRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Feedback::Stub::RemoveSilence, request);
}

absl::StatusOr<std::vector<v1::Silence>> Client::ListSilences() {
  return impl_->Collect(&v1::Feedback::Stub::ListSilences,
                        v1::ListSilencesRequest());
}

absl::StatusOr<v1::SetReview> Client::ReviewSet(const std::string& set) {
  v1::ReviewSetRequest request;
  request.set_set(set);
  return impl_->Call(&v1::Feedback::Stub::ReviewSet, request);
}

absl::StatusOr<v1::RuleRecord> Client::GetRuleRecord(
    const std::string& violation) {
  v1::GetRuleRecordRequest request;
  request.set_violation(violation);
  return impl_->Call(&v1::Feedback::Stub::GetRuleRecord, request);
}

absl::StatusOr<v1::AlertCalls> Client::GetAlertCalls() {
  auto calls = impl_->Call(&v1::Feedback::Stub::GetAlertCalls,
                           v1::GetAlertCallsRequest());
  // An older server calls nobody.
  if (absl::IsUnimplemented(calls.status())) return v1::AlertCalls();
  return calls;
}

absl::StatusOr<v1::CreateTokenReply> Client::CreateToken(
    const v1::CreateTokenRequest& request) {
  return impl_->Call(&v1::Access::Stub::CreateToken, request);
}

absl::StatusOr<std::vector<v1::Token>> Client::ListTokens() {
  return impl_->Collect(&v1::Access::Stub::ListTokens, v1::ListTokensRequest());
}

absl::StatusOr<v1::Token> Client::RevokeToken(const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Access::Stub::RevokeToken, request);
}

absl::StatusOr<v1::Job> Client::StartInference(
    const v1::InferRequest& request) {
  return impl_->Call(&v1::Control::Stub::StartInference, request);
}

absl::StatusOr<std::vector<v1::Job>> Client::ListJobs() {
  return impl_->Collect(&v1::Control::Stub::ListJobs, v1::ListJobsRequest());
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& id) {
  v1::GetJobRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Control::Stub::GetJob, request);
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& id) {
  v1::CancelJobRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Control::Stub::CancelJob, request);
}

absl::StatusOr<v1::CheckResult> Client::CheckRun(
    const v1::CheckRunRequest& request,
    const std::function<void(double)>& on_progress) {
  grpc::ClientContext context;
  return LastOf<v1::CheckResult>(impl_->stub->CheckRun(&context, request).get(),
                                 on_progress);
}

absl::StatusOr<v1::CompareRunsResult> Client::CompareRuns(
    const v1::CompareRunsRequest& request,
    const std::function<void(double)>& on_progress) {
  grpc::ClientContext context;
  absl::StatusOr<v1::CompareRunsResult> result = LastOf<v1::CompareRunsResult>(
      impl_->comparison->CompareRuns(&context, request).get(), on_progress);
  if (!absl::IsUnimplemented(result.status())) return result;
  return absl::UnimplementedError(
      "this traincheckd is too old to compare runs: start a newer one");
}

absl::StatusOr<v1::ZoomReport> Client::ShowZoom(const std::string& violation) {
  grpc::ClientContext context;
  v1::ShowZoomRequest request;
  request.set_violation(violation);
  v1::ZoomReport report;
  absl::Status status =
      ToAbsl(impl_->zoom->ShowZoom(&context, request, &report));
  if (!status.ok() && !absl::IsUnimplemented(status)) return status;
  return report;
}

absl::StatusOr<v1::InferResult> Client::Infer(
    const v1::InferRequest& request,
    const std::function<void(const v1::InferProgress&)>& on_progress) {
  grpc::ClientContext context;
  auto reader = impl_->stub->Infer(&context, request);
  std::optional<v1::InferResult> result;
  v1::InferProgress progress;
  while (reader->Read(&progress)) {
    if (progress.has_result()) {
      result = progress.result();
    } else {
      on_progress(progress);
    }
  }
  if (absl::Status status = ToAbsl(reader->Finish()); !status.ok()) {
    return status;
  }
  if (!result) return absl::InternalError("the job ended without a result");
  return *std::move(result);
}

struct ViolationStream::Impl {
  v1::Control::Stub* stub;
  v1::WatchViolationsRequest request;
  grpc::ClientContext context;
};

ViolationStream::ViolationStream(Client* client, const std::string& run)
    : impl_(std::make_unique<Impl>()) {
  impl_->stub = client->impl_->stub.get();
  impl_->request.set_run(run);
}

ViolationStream::~ViolationStream() = default;

absl::Status ViolationStream::Read(
    const std::function<void(const v1::Violation&)>& on_violation) {
  auto reader = impl_->stub->WatchViolations(&impl_->context, impl_->request);
  v1::Violation violation;
  while (reader->Read(&violation)) on_violation(violation);
  return ToAbsl(reader->Finish());
}

// Also before Read: the context keeps it, and the call ends as it begins.
void ViolationStream::Cancel() { impl_->context.TryCancel(); }

}  // namespace traincheck::ctl
