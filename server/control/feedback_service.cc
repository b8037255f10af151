#include "server/control/feedback_service.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/control/answering_service.h"

namespace traincheck::server {
absl::StatusOr<v1::MarkViolationReply> FeedbackService::Mark(
    const v1::MarkViolationRequest& request, Sight sight) {
  // The mark of a lead goes to all that follows from it as well, so that one
  // bug is judged once.
  absl::StatusOr<ViolationView::Violations> incident =
      use_.violations->FindIncident(request.violation());
  if (!incident.ok()) return incident.status();
  if (!sight.Sees(incident->front())) {
    return absl::NotFoundError(
        absl::StrCat("there is no violation ", request.violation()));
  }
  // FindIncident puts the violation that was named first.
  if (request.only()) incident->resize(1);
  const std::string& run = incident->front().run();
  const std::optional<uint64_t> number = use_.registry->NumberOf(run);
  if (!number.has_value()) return NoSuchRun(run);
  absl::StatusOr<v1::MarkViolationReply> marked =
      use_.marks->SetUntrusted(*number, request, *incident);
  // Each mark may change which runs count as healthy, and by that what a rule's
  // record says.
  if (marked.ok()) DemoteAnew(run);
  return marked;
}

// Goes over the newest runs of the owner, on the thread of the call that has
// marked something: the client waits for it.
void FeedbackService::DemoteAnew(const std::string& run) {
  const std::string owner = use_.registry->OwnerOf(run).value_or("");
  const uint64_t mark = ++marks_;
  absl::MutexLock lock(&reviewing_);
  // A review that began since has seen the mark. So however many are set at
  // once, each waits for two reviews of an owner at most.
  if (reviewed_[owner] >= mark) return;
  const uint64_t seen = marks_;
  const absl::StatusOr<std::vector<v1::RuleRecord>> broken =
      use_.review->BrokenInHealthyRuns(owner);
  const absl::Status demoted =
      broken.ok() ? use_.policy->Demote(owner, *broken) : broken.status();
  if (demoted.ok()) {
    reviewed_[owner] = seen;
    return;
  }
  // The mark is stored, and the next one tries again.
  spdlog::error("rules are not demoted run={} error={}", run,
                QuotePrintable(std::string(demoted.message())));
}

grpc::Status FeedbackService::MarkViolation(
    grpc::ServerContext* context, const v1::MarkViolationRequest* request,
    v1::MarkViolationReply* response) {
  return Answer(Mark(*request, SightOf(*context)), response);
}

// Marks lie under the run's number, which a deleted run has no more.
absl::StatusOr<std::vector<v1::Mark>> FeedbackService::MarksOf(
    const std::string& run, Sight sight) const {
  if (absl::Status seen = sight.CheckRun(run); !seen.ok()) return seen;
  const std::optional<uint64_t> number = use_.registry->NumberOf(run);
  if (!number.has_value()) return NoSuchRun(run);
  const absl::StatusOr<Marks::OfRun> marks = use_.marks->Of(*number);
  if (!marks.ok()) return marks.status();
  std::vector<v1::Mark> all;
  for (const auto& [violation, mark] : *marks) all.push_back(mark);
  return all;
}

grpc::Status FeedbackService::ListMarks(grpc::ServerContext* context,
                                        const v1::ListMarksRequest* request,
                                        grpc::ServerWriter<v1::Mark>* writer) {
  return AnswerAll(
      &lists_, [&] { return MarksOf(request->run(), SightOf(*context)); },
      writer);
}

grpc::Status FeedbackService::AddSilence(grpc::ServerContext*,
                                         const v1::Silence* request,
                                         v1::Silence* response) {
  return Answer(use_.silences->AddUntrusted(*request), response);
}

grpc::Status FeedbackService::RemoveSilence(
    grpc::ServerContext*, const v1::RemoveSilenceRequest* request,
    v1::Silence* response) {
  return Answer(use_.silences->Remove(request->id()), response);
}

absl::StatusOr<std::vector<v1::Silence>>
FeedbackService::SilencesAndWhatTheyCover(Sight sight) const {
  std::vector<v1::Silence> silences = use_.silences->List();
  // Counted when asked for: violations come, are taken back and are deleted
  // with their runs.
  std::map<std::string, uint64_t> covered;
  for (const std::string& run : use_.violations->Runs()) {
    if (!sight.SeesRun(run)) continue;
    const auto violations = use_.violations->List(run);
    if (!violations.ok()) return violations.status();
    for (const v1::Violation& violation : *violations) {
      // Those that no silence covers count under the empty id, which no silence
      // has.
      ++covered[SilenceOf(violation)];
    }
  }
  for (v1::Silence& silence : silences) {
    silence.set_covered(covered[silence.id()]);
  }
  return silences;
}

grpc::Status FeedbackService::ListSilences(
    grpc::ServerContext* context, const v1::ListSilencesRequest*,
    grpc::ServerWriter<v1::Silence>* writer) {
  return AnswerAll(
      &lists_, [&] { return SilencesAndWhatTheyCover(SightOf(*context)); },
      writer);
}

grpc::Status FeedbackService::ReviewSet(grpc::ServerContext*,
                                        const v1::ReviewSetRequest* request,
                                        v1::SetReview* response) {
  return Answer(use_.review->Review(request->set()), response);
}

absl::StatusOr<v1::RuleRecord> FeedbackService::RecordFor(const std::string& id,
                                                          Sight sight) const {
  const absl::StatusOr<ViolationView::Violations> incident =
      use_.violations->FindIncident(id);
  if (!incident.ok()) return incident.status();
  const v1::Violation& violation = incident->front();
  if (!sight.Sees(violation)) {
    return absl::NotFoundError(absl::StrCat("there is no violation ", id));
  }
  // By the runs of the violation's owner, whoever asks: an administrator is
  // shown what the owner is shown.
  return use_.review->RecordOf(
      violation, use_.registry->OwnerOf(violation.run()).value_or(""));
}

grpc::Status FeedbackService::GetRuleRecord(
    grpc::ServerContext* context, const v1::GetRuleRecordRequest* request,
    v1::RuleRecord* response) {
  return Answer(RecordFor(request->violation(), SightOf(*context)), response);
}

grpc::Status FeedbackService::GetAlertCalls(grpc::ServerContext*,
                                            const v1::GetAlertCallsRequest*,
                                            v1::AlertCalls* response) {
  *response = use_.caller->Calls();
  return grpc::Status::OK;
}

}  // namespace traincheck::server
