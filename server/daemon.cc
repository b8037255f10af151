#include "server/daemon.h"

#include <string>
#include <utility>

#include "base/logging.h"
#include "base/printable_text.h"
#include "server/sets/built_in_sets.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

void SaveBuiltInRulesOrSayWhyNot(SetCatalog* sets) {
  const absl::Status saved = SaveBuiltInRules(sets);
  if (saved.ok()) return;
  // A full disk, most often: what is stored already is there all the same.
  spdlog::error(
      "the built-in rules of this version are not saved until the next start "
      "error={}",
      QuotePrintable(std::string(saved.message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Open(const Options& options) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  if (absl::Status s = daemon->Start(options); !s.ok()) {
    // While the others are there: what is still queued changes them once it is
    // durable.
    if (daemon->store_ != nullptr) daemon->store_->Close();
    return s;
  }
  return daemon;
}

// Everything that is read from the store. An error ends the start before
// checks, jobs and streams begin.
absl::Status Daemon::Load(const Options& options) {
  absl::StatusOr<std::unique_ptr<Store>> store =
      OpenRocksdbStore(options.data_dir, {.accept_loss = options.accept_loss});
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  absl::StatusOr<std::unique_ptr<TokenBook>> tokens =
      TokenBook::Load(store_.get());
  if (!tokens.ok()) return tokens.status();
  tokens_ = *std::move(tokens);
  absl::StatusOr<std::unique_ptr<Registry>> registry = Registry::Load(
      store_.get(),
      {.lost_after = options.lost_after, .owner_bytes = options.owner_bytes});
  if (!registry.ok()) return registry.status();
  registry_ = *std::move(registry);
  absl::StatusOr<std::unique_ptr<ViolationBoard>> board =
      ViolationBoard::Load(store_.get());
  if (!board.ok()) return board.status();
  board_ = *std::move(board);
  sets_ = std::make_unique<SetCatalog>(store_.get());
  absl::StatusOr<std::unique_ptr<RulePolicy>> policy =
      RulePolicy::Load(store_.get(), sets_.get());
  if (!policy.ok()) return policy.status();
  policy_ = *std::move(policy);
  return LoadFeedback();
}

// Silences and places of rules refer to sets, so these are there before.
absl::Status Daemon::LoadFeedback() {
  marks_ = std::make_unique<Marks>(store_.get());
  absl::StatusOr<std::unique_ptr<Silences>> silences =
      Silences::Load(store_.get(), sets_.get());
  if (!silences.ok()) return silences.status();
  silences_ = *std::move(silences);
  places_ = std::make_unique<RulePlaces>(sets_.get());
  violations_ = std::make_unique<ViolationView>(
      ViolationView::Dependencies{.registry = registry_.get(),
                                  .board = board_.get(),
                                  .marks = marks_.get(),
                                  .silences = silences_.get(),
                                  .places = places_.get()});
  return absl::OkStatus();
}

// Before the checks begin to find anything.
absl::Status Daemon::StartFeedback(const Options& options) {
  review_ = std::make_unique<RuleReview>(
      RuleReview::Dependencies{.store = store_.get(),
                               .registry = registry_.get(),
                               .checks = checks_.get(),
                               .violations = violations_.get(),
                               .sets = sets_.get(),
                               .policy = policy_.get()});
  absl::StatusOr<std::unique_ptr<AlertCaller>> caller =
      AlertCaller::Load({.store = store_.get(),
                         .registry = registry_.get(),
                         .board = board_.get(),
                         .violations = violations_.get()},
                        options.on_alert);
  if (!caller.ok()) return caller.status();
  caller_ = *std::move(caller);
  caller_->Start();
  zoomer_ = std::make_unique<IncidentZoomer>(
      IncidentZoomer::Dependencies{.registry = registry_.get(),
                                   .board = board_.get(),
                                   .violations = violations_.get(),
                                   .plans = plans_.get(),
                                   .steps = options.zoom_steps});
  zoomer_->Start();
  return absl::OkStatus();
}

// These have no thread and no state of their own: they work on the threads of
// the calls that ask.
void Daemon::MakeReaders() {
  stored_checks_ = std::make_unique<StoredChecks>(
      StoredChecks::Dependencies{.store = store_.get(),
                                 .registry = registry_.get(),
                                 .sets = sets_.get(),
                                 .policy = policy_.get(),
                                 .pins = &pins_});
  stored_comparisons_ =
      std::make_unique<StoredComparisons>(StoredComparisons::Dependencies{
          .store = store_.get(), .registry = registry_.get(), .pins = &pins_});
  zoom_reports_ = std::make_unique<ZoomReports>(
      ZoomReports::Dependencies{.store = store_.get(),
                                .registry = registry_.get(),
                                .board = board_.get(),
                                .plans = plans_.get(),
                                .pins = &pins_});
}

absl::Status Daemon::Start(const Options& options) {
  if (absl::Status s = Load(options); !s.ok()) return s;
  plans_ = std::make_unique<RunPlans>(RunPlans::Dependencies{
      .store = store_.get(), .registry = registry_.get()});
  checks_ = std::make_unique<LiveChecks>(
      LiveChecks::Dependencies{.store = store_.get(),
                               .registry = registry_.get(),
                               .sets = sets_.get(),
                               .board = board_.get(),
                               .plans = plans_.get(),
                               .snapshot_every = options.snapshot_every});
  // Before checks, jobs and streams begin, and before a set is saved: no change
  // escapes those who hear of it.
  Connect();
  SaveBuiltInRulesOrSayWhyNot(sets_.get());
  MakeReaders();
  absl::StatusOr<std::unique_ptr<InferenceJobs>> jobs =
      InferenceJobs::Open({.store = store_.get(),
                           .registry = registry_.get(),
                           .sets = sets_.get(),
                           .pins = &pins_,
                           .memory_bytes = options.job_memory_bytes});
  if (!jobs.ok()) return jobs.status();
  jobs_ = *std::move(jobs);
  queries_ = std::make_unique<Queries>(
      Queries::Dependencies{.store = store_.get(),
                            .registry = registry_.get(),
                            .checks = checks_.get(),
                            .violations = violations_.get(),
                            .sets = sets_.get()});
  if (absl::Status s = StartFeedback(options); !s.ok()) return s;
  cleaner_ = std::make_unique<RunCleaner>(
      RunCleaner::Dependencies{.store = store_.get(),
                               .registry = registry_.get(),
                               .checks = checks_.get(),
                               .board = board_.get(),
                               .sets = sets_.get(),
                               .pins = &pins_,
                               .limits = options.retention,
                               .period = options.retention_period});
  metrics_ = std::make_unique<DaemonMetrics>(
      DaemonMetrics::Dependencies{.store = store_.get(),
                                  .registry = registry_.get(),
                                  .checks = checks_.get(),
                                  .board = board_.get(),
                                  .jobs = jobs_.get(),
                                  .caller = caller_.get(),
                                  .by_run = options.metrics_by_run});
  // Behind all that is to hear of what they find.
  checks_->Start();
  cleaner_->Start();
  return absl::OkStatus();
}

// The parts know each other by these functions alone, so that none depends on
// one that is made after it.
void Daemon::Connect() {
  registry_->SetSelector([policy = policy_.get()](const std::string& experiment,
                                                  const std::string& owner,
                                                  const std::string& asked) {
    return policy->SelectionFor(experiment, owner, asked);
  });
  registry_->SetObserver(
      [checks = checks_.get()](const std::string& run) { checks->Wake(run); });
  // A run without a set has no check whose end would ring, and its watchers
  // wait for the end.
  registry_->SetEndObserver([board = board_.get()](const std::string& run) {
    board->bells().Ring(run);
  });
  // Watchers look at their tokens when they wake.
  tokens_->SetRevocationObserver([board = board_.get()] { board->Wake(); });
  sets_->SetObserver(
      [checks = checks_.get()](const std::string& set) { checks->OnSet(set); });
}

// REQUIRES: the port is closed, so that no call uses what stops here.
bool Daemon::Stop() {
  // First what uses the others: retention asks the checks and waits for the
  // store.
  cleaner_->Stop();
  checks_->Stop();
  caller_->Stop();
  zoomer_->Stop();
  // The store last: it syncs what all the others have queued.
  const bool jobs_ended = jobs_->Stop(absl::Seconds(1));
  store_->Close();
  return jobs_ended;
}

}  // namespace traincheck::server
