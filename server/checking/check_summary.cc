#include "server/checking/check_summary.h"

#include <map>
#include <string>

#include "absl/strings/numbers.h"

namespace traincheck::server {
namespace {

using Reasons = google::protobuf::Map<std::string, uint32_t>;
using ApiReasons = google::protobuf::RepeatedPtrField<v1::UnknownReason>;

void ToApi(const Reasons& reasons, ApiReasons* api) {
  // A protobuf map has no order of its own, and answers are to be the same each
  // time.
  const std::map<std::string, uint32_t> sorted(reasons.begin(), reasons.end());
  for (const auto& [reason, invariants] : sorted) {
    v1::UnknownReason* added = api->Add();
    added->set_reason(reason);
    added->set_invariants(invariants);
  }
}

// By process; those that are left out have none.
std::map<uint32_t, uint32_t> EndsOf(const RunView& run) {
  std::map<uint32_t, uint32_t> ends;
  for (const RunView::Process& process : run.processes) {
    // Deletion takes records, and what was judged with them stays: the process
    // counts as it did before.
    const bool refused = process.refused && !process.records_deleted;
    if (refused || !process.end.has_value()) continue;
    ends[process.number] = static_cast<uint32_t>(*process.end);
  }
  return ends;
}

}  // namespace

// The caller adds which set was used and what was reported (LiveCheck).
stored::Check Summarise(const CheckSummary& summary) {
  stored::Check check;
  check.set_total(summary.total);
  check.set_decided(summary.decided);
  check.set_violated(summary.violated);
  check.set_not_applied(summary.not_applied);
  check.set_no_occasion(summary.no_occasion);
  check.mutable_unchecked_processes()->Assign(
      summary.unchecked_processes.begin(), summary.unchecked_processes.end());
  check.mutable_unknown()->insert(summary.unknown.begin(),
                                  summary.unknown.end());
  check.mutable_partly_unknown()->insert(summary.partly_unknown.begin(),
                                         summary.partly_unknown.end());
  return check;
}

// Reviews of rules need these ids (RuleReview): a run speaks for or against a
// rule only if its check has decided it.
stored::DecidedRules DecidedBy(const Checker& checker) {
  stored::DecidedRules decided;
  for (const InvariantVerdict& verdict : checker.Verdicts()) {
    // Ids are 16 hex digits. As numbers they take half of the room.
    uint64_t id = 0;
    if (verdict.outcome == Outcome::kUnknown ||
        !absl::SimpleHexAtoi(verdict.invariant->id, &id)) {
      continue;
    }
    decided.add_ids(id);
  }
  return decided;
}

v1::CheckProgress ToApi(const stored::Check& check) {
  v1::CheckProgress progress;
  progress.set_finished(check.finished());
  progress.set_total(check.total());
  progress.set_decided(check.decided());
  progress.set_violated(check.violated());
  progress.set_not_applied(check.not_applied());
  progress.set_no_occasion(check.no_occasion());
  *progress.mutable_unchecked_processes() = check.unchecked_processes();
  ToApi(check.unknown(), progress.mutable_unknown());
  ToApi(check.partly_unknown(), progress.mutable_partly_unknown());
  return progress;
}

// The durable cursors are added up, so the sum is the same before and after a
// restart.
uint64_t BatchCountOf(const RunView& run) {
  uint64_t batches = 0;
  for (const RunView::Process& process : run.processes) {
    batches += process.next_batch;
  }
  return batches;
}

void MarkFinished(const RunView& run, stored::Check* check) {
  check->set_finished(true);
  check->set_processes(run.processes.size());
  // Quarantined batches are counted in, since the cursors count them: a batch
  // that comes later raises the number whatever becomes of it.
  check->set_batches(BatchCountOf(run));
  const std::map<uint32_t, uint32_t> ends = EndsOf(run);
  *check->mutable_ends() = {ends.begin(), ends.end()};
}

bool IsFinished(const stored::Check& check, const RunView& run) {
  const std::map<uint32_t, uint32_t> ends(check.ends().begin(),
                                          check.ends().end());
  // What comes later adds a process or a batch, or changes an end, so these are
  // enough.
  return check.finished() && run.ended &&
         check.processes() == run.processes.size() &&
         check.batches() == BatchCountOf(run) &&
         (ends.empty() || ends == EndsOf(run));  // older versions kept none
}

}  // namespace traincheck::server
