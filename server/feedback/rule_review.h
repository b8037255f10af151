// What speaks against rules: false alarms, as people have marked them, and
// violations in runs that people call healthy.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_FEEDBACK_RULE_REVIEW_H_
#define TRAINCHECK_SERVER_FEEDBACK_RULE_REVIEW_H_

#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/feedback.pb.h"
#include "server/checking/live_checks.h"
#include "server/feedback/violation_view.h"
#include "server/runs/registry.h"
#include "server/sets/rule_policy.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

// A rule is named that was violated in a larger share of the healthy runs that
// decided it.
inline constexpr double kMaxHealthyShare = 0.05;

// A violation that is shown, or marked, waits for no more of them.
inline constexpr size_t kMaxRunsOfRecord = 500;

// Which runs are healthy, as Review judges it.
inline constexpr char kHealthyRuns[] =
    "healthy is a run that has ended, in which nothing is marked confirmed, "
    "and "
    "that a set was learned from, or that is kept, or whose check has finished "
    "with no alert but such as are marked false-alarm";

class RuleReview {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Store* store;
    const Registry* registry;
    const LiveChecks* checks;
    const ViolationView* violations;
    const SetCatalog* sets;
    const RulePolicy* policy;
  };

  explicit RuleReview(const Dependencies& dependencies) : use_(dependencies) {}

  // From now on each call below, also one at work, ends with Cancelled: the
  // daemon stops, and they read for long.
  void Stop() { stopping_ = true; }

  // Rules that were violated in more than kMaxHealthyShare of the healthy runs,
  // among the newest kMaxRunsOfRecord of `owner`, that decided them, those with
  // most against them first. DataLoss.
  [[nodiscard]] absl::StatusOr<std::vector<v1::RuleRecord>> BrokenInHealthyRuns(
      const std::string& owner) const;

  // What the newest kMaxRunsOfRecord runs of `owner` say of the violation's
  // rule, all but the violation's own run. DataLoss.
  [[nodiscard]] absl::StatusOr<v1::RuleRecord> RecordOf(
      const v1::Violation& violation, const std::string& owner) const;

  // Of the rules of `set`, NAME or NAME@VERSION; "": of all. NotFound,
  // InvalidArgument, DataLoss.
  [[nodiscard]] absl::StatusOr<v1::SetReview> Review(
      const std::string& set) const;

 private:
  using Rules = std::set<std::string>;  // ids
  struct Ledger;

  // Goes over the runs that the query selects, but for `left_out`.
  absl::StatusOr<Ledger> Read(const RunQuery& query,
                              const std::string& left_out = "") const;
  absl::StatusOr<std::set<std::string>> RunsLearnedFrom() const;
  absl::Status AddRun(const v1::Run& run, bool reference, Ledger* ledger) const;
  // By the run's check; nullopt: it is not known.
  absl::StatusOr<std::optional<Rules>> DecidedIn(const std::string& run) const;

  const Dependencies use_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_RULE_REVIEW_H_
