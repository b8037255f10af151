#include "server/checking/live_checks.h"

#include <utility>

#include "base/logging.h"
#include "server/store/keys.h"

namespace traincheck {
namespace {

stored::Check Summarise(const CheckSummary& summary) {
  stored::Check check;
  check.set_total(summary.total);
  check.set_decided(summary.decided);
  check.set_violated(summary.violated);
  check.set_not_applied(summary.not_applied);
  check.mutable_unknown()->insert(summary.unknown.begin(),
                                  summary.unknown.end());
  return check;
}

v1::CheckProgress ToApi(const stored::Check& check) {
  v1::CheckProgress progress;
  progress.set_finished(check.finished());
  progress.set_total(check.total());
  progress.set_decided(check.decided());
  progress.set_violated(check.violated());
  progress.set_not_applied(check.not_applied());
  const std::map<std::string, uint32_t> unknown(check.unknown().begin(),
                                                check.unknown().end());
  for (const auto& [reason, invariants] : unknown) {
    v1::UnknownReason* added = progress.add_unknown();
    added->set_reason(reason);
    added->set_invariants(invariants);
  }
  return progress;
}

uint64_t BatchesOf(const RunView& run) {
  uint64_t batches = 0;
  for (const RunView::Process& process : run.processes) {
    batches += process.next_batch;
  }
  return batches;
}

// Empty if the run's check was never begun.
stored::Check ReadCheck(const Store& store, uint64_t run) {
  const absl::StatusOr<std::optional<std::string>> value =
      store.Get(Table::kRuns, CheckKey(run));
  stored::Check check;
  if (value.ok() && value->has_value() && !check.ParseFromString(**value)) {
    check.Clear();
  }
  return check;
}

// Was all that the run has checked to the end?
bool IsFinished(const stored::Check& check, const RunView& run) {
  return check.finished() && run.ended &&
         check.processes() == run.processes.size() &&
         check.batches() == BatchesOf(run);
}

}  // namespace

void LiveChecks::Start() {
  for (const std::string& run : use_.registry->RunIds()) Wake(run);
  thread_ = std::thread([this] { Loop(); });
}

void LiveChecks::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LiveChecks::Wake(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  due_.insert(run);
}

void LiveChecks::Loop() {
  std::string id;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      at_.clear();
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !due_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      // The next in the order of ids, so that a busy run does not starve the
      // others.
      auto next = due_.upper_bound(id);
      if (next == due_.end()) next = due_.begin();
      id = *next;
      due_.erase(next);
      at_ = id;
    }
    const std::optional<RunView> run = use_.registry->View(id);
    if (run.has_value() && !run->check_set.empty() && Turn(*run)) Wake(id);
  }
}

bool LiveChecks::Turn(const RunView& run) {
  const auto [at, is_new] = active_.try_emplace(run.id);
  Active& active = at->second;
  if (is_new) active.stored = ReadCheck(*use_.store, run.number);
  if (active.check == nullptr && active.error.empty()) {
    if (IsFinished(active.stored, run)) {
      Publish(run.id, ToApi(active.stored));
      return false;
    }
    Begin(run, &active);
  } else if (active.check != nullptr && !active.check->Fits(run)) {
    spdlog::info("check begins anew run={}", run.id);
    Begin(run, &active);
  }
  if (active.check != nullptr) {
    const absl::StatusOr<bool> more = active.check->Advance(run);
    use_.board->Post(run.number, active.check->TakeChanges());
    if (more.ok() && *more) return true;
    if (!more.ok()) Fail(run, more.status(), &active);
  }
  if (active.check == nullptr) {
    v1::CheckProgress progress;
    progress.set_error(active.error);
    progress.set_finished(run.ended);
    Publish(run.id, progress);
  } else if (active.check->finished()) {
    Finish(run, &active);
  } else {
    Publish(run.id, ToApi(Summarise(active.check->Summary())));
  }
  return false;
}

void LiveChecks::Begin(const RunView& run, Active* active) {
  active->check.reset();
  active->stored.set_finished(false);
  const absl::StatusOr<InvariantSet> set =
      use_.sets->Load(run.check_set, active->stored.set_version());
  if (!set.ok()) {
    Fail(run, set.status(), active);
    return;
  }
  active->check = std::make_unique<RunCheck>(use_.store, run, *set);
  active->stored.set_set_version(set->version);
  Save(run, active->stored);
}

void LiveChecks::Fail(const RunView& run, const absl::Status& why,
                      Active* active) {
  active->check.reset();
  active->error = std::string(why.message());
  spdlog::warn("run is not checked run={} error=\"{}\"", run.id, active->error);
}

void LiveChecks::Finish(const RunView& run, Active* active) {
  const uint32_t set_version = active->stored.set_version();
  active->stored = Summarise(active->check->Summary());
  active->stored.set_set_version(set_version);
  active->stored.set_finished(true);
  active->stored.set_processes(run.processes.size());
  active->stored.set_batches(BatchesOf(run));
  active->check.reset();  // the memory of a whole run
  Save(run, active->stored);
  Publish(run.id, ToApi(active->stored));
  spdlog::info("check finished run={} set={} decided={} violated={} total={}",
               run.id, run.check_set, active->stored.decided(),
               active->stored.violated(), active->stored.total());
}

void LiveChecks::Save(const RunView& run, const stored::Check& check) {
  WriteSet writes;
  writes.Put(Table::kRuns, CheckKey(run.number), check.SerializeAsString());
  use_.store->Write(std::move(writes), nullptr);
}

void LiveChecks::Publish(const std::string& run,
                         const v1::CheckProgress& progress) {
  {
    absl::MutexLock lock(&mutex_);
    progress_[run] = progress;
  }
  if (progress.finished()) use_.board->Wake();
}

std::optional<v1::CheckProgress> LiveChecks::Progress(
    const std::string& run) const {
  absl::MutexLock lock(&mutex_);
  const auto at = progress_.find(run);
  if (at == progress_.end()) return std::nullopt;
  v1::CheckProgress progress = at->second;
  const bool busy = due_.count(run) > 0 || at_ == run;
  progress.set_caught_up(!busy);
  progress.set_finished(progress.finished() && !busy);
  return progress;
}

}  // namespace traincheck
