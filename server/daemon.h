// The daemon without its front: store, registry, checks and jobs, put
// together and taken apart in the right order.
//
// Threads: Open, Tick and Stop on one thread; the parts have rules of their
// own.
#ifndef TRAINCHECK_SERVER_DAEMON_H_
#define TRAINCHECK_SERVER_DAEMON_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/token_book.h"
#include "server/alerting/alert_caller.h"
#include "server/checking/live_checks.h"
#include "server/checking/stored_check.h"
#include "server/checking/violation_board.h"
#include "server/comparing/stored_comparison.h"
#include "server/control/queries.h"
#include "server/feedback/marks.h"
#include "server/feedback/rule_places.h"
#include "server/feedback/rule_review.h"
#include "server/feedback/silences.h"
#include "server/feedback/violation_view.h"
#include "server/jobs/inference_jobs.h"
#include "server/metrics/daemon_metrics.h"
#include "server/plans/run_plans.h"
#include "server/retention/run_cleaner.h"
#include "server/runs/registry.h"
#include "server/runs/run_pins.h"
#include "server/sets/rule_policy.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"
#include "server/zoom/incident_zoomer.h"
#include "server/zoom/zoom_reports.h"

namespace traincheck::server {

class Daemon {
 public:
  struct Options {
    std::string data_dir;
    absl::Duration lost_after = absl::Minutes(10);
    // How often the state of a check is saved.
    absl::Duration snapshot_every = absl::Seconds(30);
    RetentionLimits retention;
    uint64_t owner_bytes = UINT64_MAX;  // Registry::Options
    absl::Duration retention_period = absl::Minutes(1);
    AlertCommandOptions on_alert;
    // That are recorded in full once an incident begins; 0: none.
    uint32_t zoom_steps = 0;
    // Metrics tell the names of runs.
    bool metrics_by_run = false;
    // See RocksdbStoreOptions.
    bool accept_loss = false;
    // Of the process of an inference job.
    uint64_t job_memory_bytes = uint64_t{2} << 30;
  };

  // Opens the data directory and goes on with the checks that it holds.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Daemon>> Open(
      const Options& options);
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // To be called several times a second.
  void Tick() { registry_->Tick(); }

  // Ends all work, within 3 s. False if a job would not end: then only the
  // end of the process may follow. REQUIRES: no stream and no call is open.
  bool Stop();

  const std::string& store_id() const { return store_->id(); }
  Registry& registry() { return *registry_; }
  const Queries& queries() const { return *queries_; }
  Store& store() { return *store_; }
  SetCatalog& sets() { return *sets_; }
  RulePolicy& policy() { return *policy_; }
  ViolationBoard& board() { return *board_; }
  InferenceJobs& jobs() { return *jobs_; }
  RunCleaner& cleaner() { return *cleaner_; }
  RunPlans& plans() { return *plans_; }
  TokenBook& tokens() { return *tokens_; }
  Marks& marks() { return *marks_; }
  Silences& silences() { return *silences_; }
  const ViolationView& violations() const { return *violations_; }
  RuleReview& review() { return *review_; }
  const AlertCaller& caller() const { return *caller_; }
  const StoredChecks& stored_checks() const { return *stored_checks_; }
  const DaemonMetrics& metrics() const { return *metrics_; }
  const ZoomReports& zoom_reports() const { return *zoom_reports_; }
  const StoredComparisons& stored_comparisons() const {
    return *stored_comparisons_;
  }

 private:
  Daemon() = default;

  // What the data directory holds.
  absl::Status Load(const Options& options);
  // What people say of what is found, and who is called.
  absl::Status LoadFeedback();
  absl::Status StartFeedback(const Options& options);
  absl::Status Start(const Options& options);
  // What reads stored runs on request.
  void MakeReaders();
  // Who hears of what the others do.
  void Connect();

  // In the order in which they depend on each other.
  RunPins pins_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TokenBook> tokens_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<RulePolicy> policy_;
  std::unique_ptr<Marks> marks_;
  std::unique_ptr<Silences> silences_;
  std::unique_ptr<RulePlaces> places_;
  std::unique_ptr<ViolationView> violations_;
  std::unique_ptr<RunPlans> plans_;
  std::unique_ptr<LiveChecks> checks_;
  std::unique_ptr<StoredChecks> stored_checks_;
  std::unique_ptr<StoredComparisons> stored_comparisons_;
  std::unique_ptr<InferenceJobs> jobs_;
  std::unique_ptr<RuleReview> review_;
  std::unique_ptr<AlertCaller> caller_;
  std::unique_ptr<IncidentZoomer> zoomer_;
  std::unique_ptr<ZoomReports> zoom_reports_;
  std::unique_ptr<DaemonMetrics> metrics_;
  std::unique_ptr<Queries> queries_;
  std::unique_ptr<RunCleaner> cleaner_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_DAEMON_H_
