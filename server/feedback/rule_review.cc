#include "server/feedback/rule_review.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/feedback/marks.h"
#include "server/store/keys.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {
namespace {

using Violations = ViolationView::Violations;

// Violations of older daemons have no grade: they are alerts.
bool IsAlert(const v1::Violation& violation) {
  return violation.grade() != "advice";
}

// kHealthyRuns. `trusted`: a set was learned from it, or it is kept.
bool IsHealthy(const v1::Run& run, bool trusted, const Violations& found) {
  // What it will still violate is not known.
  if (run.status() == v1::RUN_STATUS_RUNNING) return false;
  const auto confirmed = [](const v1::Violation& violation) {
    return violation.mark() == kConfirmed;
  };
  // Before trust: a reference in which somebody has confirmed a bug is not
  // healthy.
  if (std::any_of(found.begin(), found.end(), confirmed)) return false;
  if (trusted) return true;
  // A run without a finished check has no alerts either, because nothing was
  // looked at.
  return run.has_check() && run.check().finished() &&
         run.check().error().empty() &&
         std::all_of(
             found.begin(), found.end(), [](const v1::Violation& violation) {
               return !IsAlert(violation) || violation.mark() == kFalseAlarm;
             });
}

double ShareOf(const v1::RuleRecord& record) {
  // A rule that no healthy run has decided has nothing against it by share;
  // false alarms speak for themselves.
  if (record.decided_runs() == 0) return 0;
  return static_cast<double>(record.violated_runs()) / record.decided_runs();
}

bool IsQuestionable(const v1::RuleRecord& record) {
  return record.false_alarms() > 0 || ShareOf(record) > kMaxHealthyShare;
}

// What speaks most against it comes first; the id makes it certain.
bool ComesBefore(const v1::RuleRecord& a, const v1::RuleRecord& b) {
  const auto order = [](const v1::RuleRecord& one) {
    return std::tuple(-static_cast<int64_t>(one.false_alarms()), -ShareOf(one),
                      one.rule());
  };
  return order(a) < order(b);
}

// Exactly this owner's, not all that the owner may see: what breaks a rule in
// the scripts of others says nothing of these. The newest ones, since somebody
// waits for the answer.
RunQuery NewestRunsOf(const std::string& owner) {
  RunQuery query;
  query.newest = kMaxRunsOfRecord;
  query.sees = [owner](const std::string& whose) { return whose == owner; };
  return query;
}

}  // namespace

// What is known of each rule, run by run.
struct RuleReview::Ledger {
  std::map<std::string, v1::RuleRecord> rules;  // with violations
  std::map<std::string, uint32_t> decided;      // healthy runs, by rule
  uint32_t healthy = 0;
  uint32_t without_record = 0;

  // What people have said of the violations of one run.
  void AddMarks(const Violations& found) {
    for (const v1::Violation& violation : found) {
      v1::RuleRecord& record = rules[violation.invariant_id()];
      record.set_rule(violation.invariant_id());
      record.set_relation(violation.relation());
      record.set_text(violation.text());
      if (violation.mark() == kConfirmed) {
        record.set_confirmed(record.confirmed() + 1);
      } else if (violation.mark() == kFalseAlarm) {
        record.set_false_alarms(record.false_alarms() + 1);
      }
    }
  }

  void AddHealthy(const Violations& found, const Rules& decided_rules) {
    // Only of rules that the run's check has decided: the others could not have
    // been violated there.
    for (const std::string& rule : decided_rules) ++decided[rule];
    Rules violated;
    for (const v1::Violation& violation : found) {
      const std::string& rule = violation.invariant_id();
      // A run counts once for a rule, however often it violates it.
      if (!decided_rules.contains(rule) || !violated.insert(rule).second) {
        continue;
      }
      rules[rule].set_violated_runs(rules[rule].violated_runs() + 1);
    }
  }
};

absl::StatusOr<std::set<std::string>> RuleReview::RunsLearnedFrom() const {
  const absl::StatusOr<std::vector<v1::SetSummary>> sets = use_.sets->List();
  if (!sets.ok()) return sets.status();
  std::set<std::string> runs;
  for (const v1::SetSummary& set : *sets) {
    runs.insert(set.runs().begin(), set.runs().end());
  }
  return runs;
}

absl::StatusOr<std::optional<RuleReview::Rules>> RuleReview::DecidedIn(
    const std::string& run) const {
  const std::optional<uint64_t> number = use_.registry->NumberOf(run);
  if (!number.has_value()) return std::nullopt;  // it is being deleted
  const absl::StatusOr<std::optional<std::string>> value =
      use_.store->Get(Table::kRuns, DecidedKey(*number));
  if (!value.ok()) return value.status();
  if (!value->has_value()) return std::nullopt;
  stored::DecidedRules decided;
  if (!decided.ParseFromString(**value)) {
    return absl::DataLossError(
        absl::StrCat("what is stored of the rules that run ", run,
                     " decided does not parse"));
  }
  Rules rules;
  for (const uint64_t id : decided.ids()) {
    // As they were stored (DecidedBy): the id of a rule is 16 hex digits.
    rules.insert(absl::StrFormat("%016x", id));
  }
  return rules;
}

absl::Status RuleReview::AddRun(const v1::Run& run, bool reference,
                                Ledger* ledger) const {
  const absl::StatusOr<Violations> found = use_.violations->List(run.id());
  if (!found.ok()) return found.status();
  // Marks count in every run, violated shares in healthy ones alone.
  ledger->AddMarks(*found);
  if (!IsHealthy(run, reference || run.kept(), *found)) {
    return absl::OkStatus();
  }
  ++ledger->healthy;
  const absl::StatusOr<std::optional<Rules>> decided = DecidedIn(run.id());
  if (!decided.ok()) return decided.status();
  if (decided->has_value()) {
    ledger->AddHealthy(*found, **decided);
  } else {
    // A run whose daemon did not store which rules its check decided says
    // nothing of any rule.
    ++ledger->without_record;
  }
  return absl::OkStatus();
}

absl::StatusOr<RuleReview::Ledger> RuleReview::Read(
    const RunQuery& query, const std::string& left_out) const {
  const absl::StatusOr<std::set<std::string>> references = RunsLearnedFrom();
  if (!references.ok()) return references.status();
  Ledger ledger;
  const auto ids = use_.registry->Find(query);
  if (!ids.ok()) return ids.status();
  for (const std::string& id : *ids) {
    if (stopping_) return absl::CancelledError("the daemon stops");
    // The record is shown beside a violation of this run: the run itself must
    // not speak for or against the rule.
    if (id == left_out) continue;
    absl::StatusOr<v1::Run> run = use_.registry->Run(id);
    if (absl::IsNotFound(run.status())) continue;  // deleted since
    if (!run.ok()) return run.status();
    use_.checks->AddProgress(&*run);
    absl::Status added = AddRun(*run, references->contains(id), &ledger);
    if (!added.ok()) return added;
  }
  // Only here have all runs been counted: a rule is decided in runs that do not
  // violate it.
  for (auto& [id, record] : ledger.rules) {
    record.set_decided_runs(ledger.decided[id]);
  }
  return ledger;
}

absl::StatusOr<std::vector<v1::RuleRecord>> RuleReview::BrokenInHealthyRuns(
    const std::string& owner) const {
  absl::StatusOr<Ledger> ledger = Read(NewestRunsOf(owner));
  if (!ledger.ok()) return ledger.status();
  std::vector<v1::RuleRecord> broken;
  for (auto& [id, record] : ledger->rules) {
    if (ShareOf(record) > kMaxHealthyShare) broken.push_back(std::move(record));
  }
  std::sort(broken.begin(), broken.end(), ComesBefore);
  return broken;
}

// The record is shown beside a violation, while somebody decides whether to
// believe it.
absl::StatusOr<v1::RuleRecord> RuleReview::RecordOf(
    const v1::Violation& violation, const std::string& owner) const {
  absl::StatusOr<Ledger> ledger = Read(NewestRunsOf(owner), violation.run());
  if (!ledger.ok()) return ledger.status();
  const std::string& rule = violation.invariant_id();
  // A rule that no other run violates is not in the ledger: its record is then
  // what the lines below give it.
  v1::RuleRecord record = std::move(ledger->rules[rule]);
  record.set_rule(rule);
  record.set_relation(violation.relation());
  record.set_text(violation.text());
  record.set_decided_runs(ledger->decided[rule]);
  return record;
}

// The review goes over the runs of all owners, so it is for administrators.
absl::StatusOr<v1::SetReview> RuleReview::Review(const std::string& set) const {
  Rules wanted;
  if (!set.empty()) {
    const absl::StatusOr<v1::SetDetail> detail = use_.sets->Detail(set);
    if (!detail.ok()) return detail.status();
    for (const v1::Invariant& rule : detail->invariants()) {
      wanted.insert(rule.id());
    }
  }
  absl::StatusOr<Ledger> ledger = Read(RunQuery());
  if (!ledger.ok()) return ledger.status();
  Rules disabled;
  for (const v1::DisabledRule& rule : use_.policy->Disabled()) {
    disabled.insert(rule.rule());
  }
  v1::SetReview review;
  review.set_set(set);
  review.set_healthy(kHealthyRuns);
  review.set_healthy_runs(ledger->healthy);
  review.set_without_record(ledger->without_record);
  review.set_max_share(kMaxHealthyShare);
  for (auto& [id, record] : ledger->rules) {
    if (!set.empty() && !wanted.contains(id)) continue;
    if (!IsQuestionable(record)) continue;
    // Counted and not listed: somebody has decided about it already.
    if (disabled.contains(id)) {
      review.set_disabled(review.disabled() + 1);
    } else {
      *review.add_rules() = std::move(record);
    }
  }
  std::sort(review.mutable_rules()->begin(), review.mutable_rules()->end(),
            ComesBefore);
  return review;
}

}  // namespace traincheck::server
