#include "server/control/control_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/control/answering_service.h"
#include "server/control/set_deletion.h"
#include "server/control/violation_watch.h"
#include "server/jobs/job_book.h"
#include "server/sets/set_parts.h"

namespace traincheck::server {
namespace {

// How soon a call that waits for a job notices that its client has left.
constexpr absl::Duration kLookAround = absl::Milliseconds(200);

// How the client hears of a job that did not yield a set.
grpc::Status NotDone(const v1::Job& job) {
  if (job.status() == v1::JOB_STATUS_CANCELLED) {
    return grpc::Status(grpc::StatusCode::CANCELLED,
                        absl::StrCat("job ", job.id(), " was cancelled"));
  }
  return grpc::Status(
      grpc::StatusCode::ABORTED,
      absl::StrCat("job ", job.id(), " has failed: ", job.reason()));
}

// Whose runs they may be is added by ListRuns.
RunQuery ToQuery(const v1::ListRunsRequest& request) {
  return {.experiment = request.experiment(),
          .started_since_unix_ns = request.started_since_unix_ns(),
          .id_prefix = request.id_prefix(),
          .sees = nullptr,
          .newest = request.newest(),
          .before = request.before()};
}

grpc::Status Stopping() {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "traincheckd is stopping");
}

absl::StatusOr<v1::SetSummary> Import(const Caller& caller,
                                      const std::string& name,
                                      const std::string& json,
                                      SetCatalog* sets) {
  // Else the set would belong to nobody.
  if (caller.role == v1::ROLE_UNSPECIFIED) {
    return absl::UnauthenticatedError("the token was revoked");
  }
  return sets->ImportUntrusted(name, json, caller.owner);
}

}  // namespace

void ControlService::Stop() {
  // The flag first: watchers that wake look at it.
  stopping_ = true;
  use_.board->Wake();
}

grpc::Status ControlService::GetStatus(grpc::ServerContext* context,
                                       const v1::GetStatusRequest*,
                                       v1::ServerStatus* response) {
  *response = use_.queries->Status();
  std::vector<v1::Run> runs(response->runs().begin(), response->runs().end());
  // The daemon's own numbers are for all callers, its runs for those who see
  // them.
  SightOf(*context).Filter(&runs);
  response->mutable_runs()->Assign(runs.begin(), runs.end());
  return grpc::Status::OK;
}

grpc::Status ControlService::ListRuns(grpc::ServerContext* context,
                                      const v1::ListRunsRequest* request,
                                      grpc::ServerWriter<v1::Run>* writer) {
  const absl::StatusOr<CallLimit::Slot> slot = lists_.Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  const Caller caller = SightOf(*context).caller();
  RunQuery query = ToQuery(*request);
  query.sees = [&](const std::string& owner) { return caller.Sees(owner); };
  const auto ids = use_.registry->Find(query);
  if (!ids.ok()) return ToGrpc(ids.status());
  // One after the other: all runs at once are much memory.
  for (const std::string& id : *ids) {
    absl::StatusOr<v1::Run> run = use_.queries->Run(id);
    if (absl::IsNotFound(run.status())) continue;  // deleted since
    if (!run.ok()) return ToGrpc(run.status());
    // With all processes a list of many runs is many times as large.
    if (request->without_processes()) {
      run->clear_processes();
      run->clear_missing();
    }
    if (!writer->Write(*run)) break;  // the client has left
  }
  return grpc::Status::OK;
}

grpc::Status ControlService::GetRun(grpc::ServerContext* context,
                                    const v1::GetRunRequest* request,
                                    v1::Run* response) {
  const absl::Status seen = SightOf(*context).CheckRun(request->run());
  if (!seen.ok()) return ToGrpc(seen);
  return Answer(use_.queries->Run(request->run()), response);
}

grpc::Status ControlService::DeleteRun(grpc::ServerContext* context,
                                       const v1::DeleteRunRequest* request,
                                       v1::DeleteRunReply* response) {
  const absl::Status seen = SightOf(*context).CheckRun(request->run());
  if (!seen.ok()) return ToGrpc(seen);
  return Answer(use_.cleaner->Delete(request->run()), response);
}

grpc::Status ControlService::KeepRun(grpc::ServerContext* context,
                                     const v1::KeepRunRequest* request,
                                     v1::Run* response) {
  const absl::Status seen = SightOf(*context).CheckRun(request->run());
  if (!seen.ok()) return ToGrpc(seen);
  const absl::Status kept = use_.cleaner->Keep(request->run(), request->keep());
  if (!kept.ok()) return ToGrpc(kept);
  return Answer(use_.queries->Run(request->run()), response);
}

grpc::Status ControlService::GetRunPlan(grpc::ServerContext* context,
                                        const v1::GetRunPlanRequest* request,
                                        v1::RunPlan* response) {
  const absl::Status seen = SightOf(*context).CheckRun(request->run());
  if (!seen.ok()) return ToGrpc(seen);
  return Answer(use_.plans->Show(request->run()), response);
}

grpc::Status ControlService::ChangeRunPlan(
    grpc::ServerContext* context, const v1::ChangeRunPlanRequest* request,
    v1::RunPlan* response) {
  const absl::Status seen = SightOf(*context).CheckRun(request->run());
  if (!seen.ok()) return ToGrpc(seen);
  return Answer(use_.plans->ChangeUntrusted(request->run(), request->json()),
                response);
}

// Takes as long as copying the store where the folder is on another disk.
// Ingest goes on meanwhile.
grpc::Status ControlService::Backup(grpc::ServerContext*,
                                    const v1::BackupRequest* request,
                                    v1::BackupReply* response) {
  const absl::StatusOr<uint64_t> bytes = use_.store->Backup(request->folder());
  if (!bytes.ok()) return ToGrpc(bytes.status());
  response->set_folder(request->folder());
  response->set_bytes(*bytes);
  return grpc::Status::OK;
}

// Each run is looked at before the job is made, so that a job of one owner
// never reads another's records.
absl::StatusOr<v1::Job> ControlService::StartJob(
    const grpc::ServerContext& context, const v1::InferRequest& request) {
  Sight sight = SightOf(context);
  for (const std::string& run : request.runs()) {
    if (absl::Status seen = sight.CheckRun(run); !seen.ok()) return seen;
  }
  return use_.jobs->Start(request, sight.caller().owner);
}

absl::StatusOr<v1::Job> ControlService::FindJob(
    const grpc::ServerContext& context, const std::string& id) const {
  // A job of another owner is answered for as one that is not there, so that
  // nothing is learned from trying ids.
  absl::StatusOr<v1::Job> job = use_.jobs->book().Find(id);
  if (!job.ok() || SightOf(context).Sees(*job)) return job;
  return NoSuchJob(id);
}

// A client that leaves does not end its job: the set is stored all the same.
grpc::Status ControlService::Infer(
    grpc::ServerContext* context, const v1::InferRequest* request,
    grpc::ServerWriter<v1::InferProgress>* writer) {
  const absl::StatusOr<CallLimit::Slot> slot =
      waiting_.Enter(use_.gate->CallerOf(*context).owner);
  if (!slot.ok()) return ToGrpc(slot.status());
  const absl::StatusOr<v1::Job> started = StartJob(*context, *request);
  if (!started.ok()) return ToGrpc(started.status());
  uint64_t seen = 0;
  while (!context->IsCancelled()) {
    if (stopping_) return Stopping();
    const absl::StatusOr<JobBook::Snapshot> now =
        use_.jobs->book().Wait(started->id(), seen, kLookAround);
    if (!now.ok()) return ToGrpc(now.status());
    // Nothing new: it is only to be seen whether the client has left or the
    // daemon stops.
    if (now->revision == seen) continue;
    seen = now->revision;
    const bool done = now->job.status() == v1::JOB_STATUS_DONE;
    if (HasEnded(now->job) && !done) return NotDone(now->job);
    v1::InferProgress progress;
    progress.set_job(now->job.id());
    progress.set_stage(now->job.stage());
    progress.set_fraction(now->job.fraction());
    if (done) *progress.mutable_result() = now->job.result();
    if (!writer->Write(progress) || done) break;
  }
  return grpc::Status::OK;
}

grpc::Status ControlService::StartInference(grpc::ServerContext* context,
                                            const v1::InferRequest* request,
                                            v1::Job* response) {
  return Answer(StartJob(*context, *request), response);
}

grpc::Status ControlService::ListJobs(grpc::ServerContext* context,
                                      const v1::ListJobsRequest*,
                                      grpc::ServerWriter<v1::Job>* writer) {
  return AnswerAll(
      &lists_,
      [&]() -> absl::StatusOr<std::vector<v1::Job>> {
        std::vector<v1::Job> jobs = use_.jobs->book().List();
        SightOf(*context).Filter(&jobs);
        return jobs;
      },
      writer);
}

grpc::Status ControlService::GetJob(grpc::ServerContext* context,
                                    const v1::GetJobRequest* request,
                                    v1::Job* response) {
  return Answer(FindJob(*context, request->id()), response);
}

grpc::Status ControlService::CancelJob(grpc::ServerContext* context,
                                       const v1::CancelJobRequest* request,
                                       v1::Job* response) {
  // Whether the caller sees the job at all; only then is it cancelled.
  const absl::Status seen = FindJob(*context, request->id()).status();
  if (!seen.ok()) return ToGrpc(seen);
  return Answer(use_.jobs->Cancel(request->id()), response);
}

absl::Status ControlService::Annotate(v1::CheckResult* result) const {
  // Ids are made of rule, window and ranks, so marks and silences hold for what
  // a check on request finds, too.
  ViolationView::Violations found(result->violations().begin(),
                                  result->violations().end());
  absl::Status annotated = use_.violations->Annotate(result->run(), &found);
  result->mutable_violations()->Assign(found.begin(), found.end());
  return annotated;
}

grpc::Status ControlService::CheckRun(
    grpc::ServerContext* context, const v1::CheckRunRequest* request,
    grpc::ServerWriter<v1::CheckRunProgress>* writer) {
  // Before a slot is taken: there are few, and they are for those who see the
  // run.
  const absl::Status seen = SightOf(*context).CheckRun(request->run());
  if (!seen.ok()) return ToGrpc(seen);
  const absl::StatusOr<CallLimit::Slot> slot = checks_.Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  v1::CheckRunProgress progress;
  absl::Time told;
  const auto tell = [&](double fraction) {
    if (stopping_ || context->IsCancelled()) return false;
    // The check asks with every share that it reads: a message for each would
    // be more than anybody looks at.
    if (absl::Now() - told < kLookAround) return true;
    told = absl::Now();
    progress.set_fraction(fraction);
    return writer->Write(progress);
  };
  absl::StatusOr<v1::CheckResult> result = use_.checks->Check(*request, tell);
  if (stopping_) return Stopping();
  if (!result.ok()) return ToGrpc(result.status());
  const absl::Status annotated = Annotate(&*result);
  if (!annotated.ok()) return ToGrpc(annotated);
  *progress.mutable_result() = *std::move(result);
  writer->Write(progress);
  return grpc::Status::OK;
}

// Sets are shown to every caller: they hold rules and no records. Only writing
// them is for their owner.
grpc::Status ControlService::ListSets(
    grpc::ServerContext*, const v1::ListSetsRequest*,
    grpc::ServerWriter<v1::SetSummary>* writer) {
  return AnswerAll(
      &lists_, [this] { return use_.sets->List(); }, writer);
}

grpc::Status ControlService::GetSet(grpc::ServerContext*,
                                    const v1::GetSetRequest* request,
                                    v1::SetDetail* response) {
  return Answer(use_.sets->Detail(request->name(), request->version()),
                response);
}

grpc::Status ControlService::ImportSet(grpc::ServerContext* context,
                                       const v1::ImportSetRequest* request,
                                       v1::SetSummary* response) {
  return Answer(Import(use_.gate->CallerOf(*context), request->name(),
                       request->json(), use_.sets),
                response);
}

grpc::Status ControlService::GetSetInParts(
    grpc::ServerContext*, const v1::GetSetRequest* request,
    grpc::ServerWriter<v1::SetPart>* writer) {
  const absl::StatusOr<CallLimit::Slot> slot = lists_.Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  const absl::StatusOr<v1::SetDetail> set =
      use_.sets->Detail(request->name(), request->version());
  if (!set.ok()) return ToGrpc(set.status());
  SendInParts(*set,
              [&](const v1::SetPart& part) { return writer->Write(part); });
  return grpc::Status::OK;
}

// The name is that of the first part that has one; the JSON comes in order.
grpc::Status ControlService::ImportSetInParts(
    grpc::ServerContext* context, grpc::ServerReader<v1::ImportSetPart>* reader,
    v1::SetSummary* response) {
  // A set lies in memory until its last part has come, so few of these calls
  // are open at once.
  const absl::StatusOr<CallLimit::Slot> slot = imports_.Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  std::string name;
  std::string json;
  v1::ImportSetPart part;
  while (reader->Read(&part)) {
    if (name.empty()) name = part.name();
    json += part.json();
    // With each part: a client may send without end.
    if (json.size() > kMaxSetBytes) {
      return ToGrpc(absl::ResourceExhaustedError(absl::StrCat(
          "the set has more than ", kMaxSetBytes >> 20,
          " MiB of JSON, which is the limit: import it in two sets")));
    }
  }
  return Answer(Import(use_.gate->CallerOf(*context), name, json, use_.sets),
                response);
}

grpc::Status ControlService::GetSetPlan(grpc::ServerContext*,
                                        const v1::GetSetPlanRequest* request,
                                        v1::SetPlan* response) {
  return Answer(use_.queries->SetPlan(request->name()), response);
}

grpc::Status ControlService::DeleteSet(grpc::ServerContext* context,
                                       const v1::DeleteSetRequest* request,
                                       v1::DeleteSetReply* response) {
  return Answer(
      server::DeleteSet(request->set(), use_.gate->CallerOf(*context).owner,
                        *use_.registry, *use_.policy, use_.sets),
      response);
}

grpc::Status ControlService::DisableRule(grpc::ServerContext*,
                                         const v1::DisableRuleRequest* request,
                                         v1::DisabledRule* response) {
  return Answer(use_.policy->Disable(request->rule(), request->reason()),
                response);
}

grpc::Status ControlService::EnableRule(grpc::ServerContext*,
                                        const v1::EnableRuleRequest* request,
                                        v1::DisabledRule* response) {
  return Answer(use_.policy->Enable(request->rule()), response);
}

grpc::Status ControlService::ListDisabledRules(
    grpc::ServerContext*, const v1::ListDisabledRulesRequest*,
    grpc::ServerWriter<v1::DisabledRule>* writer) {
  return AnswerAll(
      &lists_,
      [this]() -> absl::StatusOr<std::vector<v1::DisabledRule>> {
        return use_.policy->Disabled();
      },
      writer);
}

grpc::Status ControlService::DeploySets(grpc::ServerContext*,
                                        const v1::DeploySetsRequest* request,
                                        v1::Deployment* response) {
  return Answer(
      use_.policy->Deploy(request->experiment(),
                          {request->sets().begin(), request->sets().end()}),
      response);
}

grpc::Status ControlService::ListDeployments(
    grpc::ServerContext*, const v1::ListDeploymentsRequest*,
    grpc::ServerWriter<v1::Deployment>* writer) {
  return AnswerAll(
      &lists_,
      [this]() -> absl::StatusOr<std::vector<v1::Deployment>> {
        return use_.policy->Deployments();
      },
      writer);
}

// What a run of the caller would be checked against if it began now.
grpc::Status ControlService::GetSelection(
    grpc::ServerContext* context, const v1::GetSelectionRequest* request,
    v1::Selection* response) {
  response->set_text(use_.policy->SelectionFor(
      request->experiment(), use_.gate->CallerOf(*context).owner,
      request->asked()));
  return grpc::Status::OK;
}

grpc::Status ControlService::GetInvariant(
    grpc::ServerContext*, const v1::GetInvariantRequest* request,
    v1::Invariant* response) {
  return Answer(use_.sets->FindInvariant(request->id()), response);
}

grpc::Status ControlService::ListViolations(
    grpc::ServerContext* context, const v1::ListViolationsRequest* request,
    grpc::ServerWriter<v1::Violation>* writer) {
  const absl::StatusOr<CallLimit::Slot> slot = lists_.Enter();
  if (!slot.ok()) return ToGrpc(slot.status());
  Sight sight = SightOf(*context);
  const absl::Status seen = sight.CheckRun(request->run());
  if (!seen.ok()) return ToGrpc(seen);
  const std::string& asked = request->run();
  // One run after the other: those of all runs at once are much memory.
  for (const std::string& run :
       asked.empty() ? use_.board->Runs() : std::vector{asked}) {
    if (asked.empty() && !sight.SeesRun(run)) continue;
    const auto violations = use_.queries->Violations(run);
    // The run was deleted since it was listed.
    if (asked.empty() && absl::IsNotFound(violations.status())) continue;
    if (!violations.ok()) return ToGrpc(violations.status());
    for (const v1::Violation& violation : *violations) {
      if (!writer->Write(violation)) return grpc::Status::OK;  // it has left
    }
  }
  return grpc::Status::OK;
}

grpc::Status ControlService::GetViolation(
    grpc::ServerContext* context, const v1::GetViolationRequest* request,
    v1::Violation* response) {
  absl::StatusOr<v1::Violation> violation =
      use_.violations->Find(request->id());
  // As if it were not there: an id says nothing of whose it is.
  if (violation.ok() && !SightOf(*context).Sees(*violation)) {
    violation = absl::NotFoundError(
        absl::StrCat("there is no violation ", request->id()));
  }
  return Answer(std::move(violation), response);
}

grpc::Status ControlService::WatchViolations(
    grpc::ServerContext* context, const v1::WatchViolationsRequest* request,
    grpc::ServerWriter<v1::Violation>* writer) {
  const absl::StatusOr<CallLimit::Slot> slot =
      waiting_.Enter(use_.gate->CallerOf(*context).owner);
  if (!slot.ok()) return ToGrpc(slot.status());
  ViolationWatch watch({.queries = use_.queries,
                        .violations = use_.violations,
                        .bells = &use_.board->bells(),
                        .gate = use_.gate,
                        .stopping = &stopping_},
                       request->run(), SightOf(*context));
  // Headers at once: the client knows from then on that nothing escapes it.
  writer->SendInitialMetadata();
  return ToGrpc(watch.Serve(
      {.send = [&](const v1::Violation& row) { return writer->Write(row); },
       .has_left = [&] { return context->IsCancelled(); }}));
}

}  // namespace traincheck::server
