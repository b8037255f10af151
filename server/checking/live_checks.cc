#include "server/checking/live_checks.h"

namespace traincheck::server {

void LiveChecks::Start() {
  for (const std::string& run : use_.registry->RunIds()) Wake(run);
  thread_ = std::thread([this] { Loop(); });
}

void LiveChecks::Stop() {
  queue_.Stop();
  if (thread_.joinable()) thread_.join();
}

void LiveChecks::Loop() {
  while (const std::optional<CheckQueue::Due> due = queue_.AwaitDue()) {
    for (const std::string& run : due->forgotten) checks_.erase(run);
    if (Turn(due->run)) Wake(due->run);
  }
  SaveAll();
}

bool LiveChecks::Turn(const std::string& id) {
  const std::optional<RunView> run = use_.registry->View(id);
  if (!run.has_value() || run->check_set.empty()) return false;
  LiveCheck& check = CheckOf(*run);
  const bool more = check.Turn(*run);
  queue_.SetBehind(id, check.BatchesBehind(*run));
  if (more) return true;
  Publish(id, check.Progress(*run));
  return false;
}

LiveCheck& LiveChecks::CheckOf(const RunView& run) {
  std::unique_ptr<LiveCheck>& check = checks_[run.id];
  if (check == nullptr || check->run_number() != run.number) {
    check = std::make_unique<LiveCheck>(
        LiveCheck::Dependencies{.store = use_.store,
                                .sets = use_.sets,
                                .board = use_.board,
                                .plans = use_.plans,
                                .queue = &queue_,
                                .snapshot_every = use_.snapshot_every},
        run.number);
  }
  return *check;
}

void LiveChecks::Publish(const std::string& run,
                         const v1::CheckProgress& progress) {
  queue_.Publish(run, progress);
  if (progress.finished()) use_.board->Wake();
}

void LiveChecks::SaveAll() {
  for (const auto& [id, check] : checks_) {
    const std::optional<RunView> run = use_.registry->View(id);
    // A run that was deleted may have left its id to another one.
    if (run.has_value() && run->number == check->run_number()) {
      check->Save(*run);
    }
  }
}

void LiveChecks::AddProgress(v1::Run* run) const {
  if (run->check_set().empty()) return;
  *run->mutable_check() = Progress(run->id()).value_or(v1::CheckProgress());
}

}  // namespace traincheck::server
