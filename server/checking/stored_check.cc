#include "server/checking/stored_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/checking/check_summary.h"
#include "server/checking/run_check.h"
#include "server/checking/violation_message.h"
#include "server/runs/ended_run.h"

namespace traincheck::server {
namespace {

// How long the last records of a run that has ended are waited for, and how
// often they are looked for.
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kLookAgain = absl::Milliseconds(10);

// A pass with a reason was decided in a part of its windows only: people see it
// as partly checked and never as passed.
v1::Verdict VerdictOf(const InvariantVerdict& verdict) {
  switch (verdict.outcome) {
    case Outcome::kPass:
      return verdict.reason.empty() ? v1::VERDICT_PASS : v1::VERDICT_PARTLY;
    case Outcome::kViolated:
      return v1::VERDICT_VIOLATED;
    case Outcome::kUnknown:
      return verdict.no_occasion ? v1::VERDICT_NO_OCCASION
                                 : v1::VERDICT_UNKNOWN;
  }
  return v1::VERDICT_UNSPECIFIED;
}

v1::CheckResult ResultOf(const RunCheck& check, const RunView& run,
                         const InvariantSet& set) {
  v1::CheckResult result;
  result.set_run(run.id);
  result.set_set(set.name);
  result.set_version(set.version);
  for (const InvariantVerdict& verdict : check.checker().Verdicts()) {
    v1::InvariantVerdict* added = result.add_verdicts();
    added->set_invariant_id(verdict.invariant->id);
    added->set_relation(verdict.invariant->rule->relation_name());
    added->set_text(verdict.invariant->text);
    added->set_verdict(VerdictOf(verdict));
    added->set_reason(verdict.reason);
    added->set_decided_windows(verdict.windows.decided);
    added->set_unknown_windows(verdict.windows.unknown);
  }
  for (const Violation& violation : check.checker().Violations()) {
    *result.add_violations() = server::ToApi(violation);
  }
  // The same run gives the same answer, in whatever order its batches were
  // read.
  std::sort(result.mutable_violations()->begin(),
            result.mutable_violations()->end(),
            [](const v1::Violation& a, const v1::Violation& b) {
              return std::pair(a.first_step(), a.id()) <
                     std::pair(b.first_step(), b.id());
            });
  *result.mutable_coverage() =
      server::ToApi(Summarise(check.checker().Summary()));
  result.mutable_coverage()->set_finished(true);
  result.mutable_coverage()->set_caught_up(true);
  return result;
}

// The client's progress bar shows this. Refused processes are left out on both
// sides, since they are never read.
double FractionRead(const RunCheck& check, const RunView& run) {
  uint64_t batches = 0;
  for (const RunView::Process& process : run.processes) {
    if (!process.refused) batches += process.next_batch;
  }
  if (batches == 0) return 1;
  return static_cast<double>(check.batches()) / static_cast<double>(batches);
}

}  // namespace

// A run that goes on has no final verdict; the live check has the one so far.
absl::StatusOr<RunView> StoredChecks::FindRun(const std::string& id) const {
  return FindEndedRun(*use_.registry, id,
                      "check it when it has, or start it with the set to check "
                      "it while it trains");
}

absl::StatusOr<v1::CheckResult> StoredChecks::Check(
    const v1::CheckRunRequest& request, const Progress& progress) const {
  // Held first and looked for then, see RunPins.
  const RunPins::Pin pin = use_.pins->Hold(request.run());
  absl::StatusOr<RunView> run = FindRun(request.run());
  if (!run.ok()) return run.status();
  const std::string owner = use_.registry->OwnerOf(request.run()).value_or("");
  const absl::StatusOr<InvariantSet> set =
      use_.sets->Load(use_.policy->AsDecided(owner, request.set()));
  if (!set.ok()) return set.status();
  // No snapshot is used: the state of a live check belongs to the rules of its
  // own set.
  RunCheck check(use_.store, *run, *set);
  absl::Time patience = absl::Now() + kPatience;
  while (true) {
    const absl::StatusOr<bool> more = check.Advance(*run);
    if (!more.ok()) return more.status();
    if (check.all_read()) {
      check.End();
      return ResultOf(check, *run, *set);
    }
    if (!progress(FractionRead(check, *run))) {
      return absl::CancelledError("the client has left");
    }
    if (*more) {
      patience = absl::Now() + kPatience;
      continue;
    }
    // The end of a run is known a moment before its last batch is durable.
    if (absl::Now() > patience) {
      return absl::UnavailableError(absl::StrCat(
          "the last records of run ", run->id, " are not stored yet"));
    }
    absl::SleepFor(kLookAgain);
    run = FindRun(request.run());
    if (!run.ok()) return run.status();
    // A live check would begin anew. Here the client asked for a verdict on a
    // run that had ended, and is to hear that it has not.
    if (const std::string why = check.WhyAnew(*run); !why.empty()) {
      return absl::AbortedError(
          absl::StrCat("run ", run->id, " has changed: ", why));
    }
  }
}

}  // namespace traincheck::server
