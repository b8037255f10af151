#include "server/checking/live_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/checking/check_summary.h"
#include "server/store/keys.h"

namespace traincheck {
namespace {

// Of the checker's time, and of what the disk takes.
constexpr double kSnapshotShare = 0.02;
constexpr double kWriteRate = 50e6;  // bytes a second

uint64_t BatchesOf(const RunView& run) {
  uint64_t batches = 0;
  for (const RunView::Process& process : run.processes) {
    batches += process.next_batch;
  }
  return batches;
}

// By process; those that are left out have none.
std::map<uint32_t, uint32_t> EndsOf(const RunView& run) {
  std::map<uint32_t, uint32_t> ends;
  for (const RunView::Process& process : run.processes) {
    if (process.refused || !process.end.has_value()) continue;
    ends[process.number] = static_cast<uint32_t>(*process.end);
  }
  return ends;
}

// Did retention take all that could be checked?
bool HasNoRecords(const RunView& run) {
  return run.records_deleted &&
         std::all_of(
             run.processes.begin(), run.processes.end(),
             [](const RunView::Process& process) { return process.refused; });
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
  const std::map<uint32_t, uint32_t> ends(check.ends().begin(),
                                          check.ends().end());
  return check.finished() && run.ended &&
         check.processes() == run.processes.size() &&
         check.batches() == BatchesOf(run) &&
         (ends.empty() || ends == EndsOf(run));  // older versions kept none
}

void AddCheck(const RunView& run, const stored::Check& check,
              WriteSet* writes) {
  writes->Put(Table::kRuns, CheckKey(run.number), check.SerializeAsString());
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

void LiveChecks::OnSet(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  for (auto run = waiting_.begin(); run != waiting_.end();) {
    if (run->second != name) {
      ++run;
      continue;
    }
    due_.insert(run->first);
    run = waiting_.erase(run);
  }
}

bool LiveChecks::IsWaiting(const std::string& run) const {
  absl::MutexLock lock(&mutex_);
  return waiting_.count(run) > 0;
}

void LiveChecks::Forget(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  const auto left = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return at_ != run;
  };
  mutex_.Await(absl::Condition(&left));
  due_.erase(run);
  waiting_.erase(run);
  progress_.erase(run);
  forgotten_.insert(run);
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
      if (stopping_) break;
      for (const std::string& run : forgotten_) active_.erase(run);
      forgotten_.clear();
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
  SaveAll();
}

bool LiveChecks::Turn(const RunView& run) {
  Active& active = active_[run.id];
  const bool is_new = active.run != run.number;
  if (is_new) {
    active = Active();
    active.run = run.number;
    active.stored = ReadCheck(*use_.store, run.number);
    active.told = Told(active.stored);
  }
  if (active.without_set && !IsWaiting(run.id)) {  // it has come
    active.without_set = false;
    active.error.clear();
  }
  if (active.check == nullptr && active.error.empty()) {
    if (IsFinished(active.stored, run)) {
      Publish(run.id, ToApi(active.stored));
      return false;
    }
    // A snapshot may still lie there when the check has finished.
    Begin(run, &active, /*anew=*/!is_new);
  }
  if (active.check != nullptr) {
    if (const std::string why = active.check->WhyAnew(run); !why.empty()) {
      spdlog::info("check begins anew run={} reason=\"{}\"", run.id, why);
      active.told.Add(run, *active.check);
      Begin(run, &active, /*anew=*/true);
    }
  }
  if (active.check != nullptr) {
    const absl::StatusOr<bool> more = active.check->Advance(run);
    Tell(run, &active);
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
    Publish(run.id, ToApi(Summarise(active.check->checker().Summary())));
  }
  return false;
}

void LiveChecks::Begin(const RunView& run, Active* active, bool anew) {
  active->check.reset();
  active->stored.set_finished(false);
  const absl::StatusOr<InvariantSet> set = LoadSet(run, *active);
  if (!set.ok()) {
    active->without_set = absl::IsNotFound(set.status());
    Fail(run, set.status(), active);
    return;
  }
  if (use_.plans != nullptr) use_.plans->OnCheckBegins(run, *set);
  active->next_snapshot = absl::Now() + use_.snapshot_every;
  if (anew || !Resume(run, *set, active)) {
    active->check = std::make_unique<RunCheck>(use_.store, run, *set);
    active->saved_batches = 0;
  }
  active->stored.set_set_version(set->version);
  WriteSet writes;
  AddCheck(run, active->stored, &writes);
  use_.store->Write(std::move(writes), nullptr);
}

absl::StatusOr<InvariantSet> LiveChecks::LoadSet(const RunView& run,
                                                 const Active& active) {
  if (HasNoRecords(run)) {
    return absl::FailedPreconditionError(
        "retention deleted the records before they were checked");
  }
  const absl::StatusOr<SetRef> ref = ParseSetRef(run.check_set);
  if (!ref.ok()) return ref.status();
  {
    // Before looking, so that one that comes meanwhile is not missed.
    absl::MutexLock lock(&mutex_);
    waiting_[run.id] = ref->name;
  }
  absl::StatusOr<InvariantSet> set =
      use_.sets->Load(run.check_set, active.stored.set_version());
  if (absl::IsNotFound(set.status())) {
    return absl::NotFoundError(absl::StrCat(
        set.status().message(),
        "; once it is there the run is checked from its first record"));
  }
  absl::MutexLock lock(&mutex_);
  waiting_.erase(run.id);
  return set;
}

bool LiveChecks::Resume(const RunView& run, const InvariantSet& set,
                        Active* active) {
  const absl::StatusOr<std::optional<std::string>> value =
      use_.store->Get(Table::kRuns, SnapshotKey(run.number));
  if (!value.ok() || !value->has_value() || (*value)->empty()) return false;
  auto check = std::make_unique<RunCheck>(use_.store, run, set);
  stored::CheckSnapshot snapshot;
  absl::Status restored = absl::DataLossError("it does not parse");
  if (snapshot.ParseFromString(**value)) restored = check->Restore(snapshot);
  if (!restored.ok()) {
    spdlog::warn("snapshot of a check is left aside run={} reason=\"{}\"",
                 run.id, std::string(restored.message()));
    return false;
  }
  spdlog::info("check resumes run={} batches_read={} of={}", run.id,
               check->batches(), BatchesOf(run));
  active->saved_batches = check->batches();
  active->check = std::move(check);
  return true;
}

void LiveChecks::Tell(const RunView& run, Active* active) {
  RunCheck& check = *active->check;
  std::vector<Violation> found = check.TakeChanges();
  auto known = ViolationBoard::Known::kUpdate;
  if (!active->told.empty()) {
    if (check.finished() || active->told.ReachedBy(run, check)) {
      active->told.Clear();
      found = check.checker().Violations();
    } else {
      known = ViolationBoard::Known::kKeep;
    }
  }
  const absl::Time now = absl::Now();
  const bool due = now >= active->next_snapshot && !check.finished() &&
                   check.batches() != active->saved_batches;
  const auto more = [&](WriteSet* writes) {
    Told told = active->told;
    told.Add(run, check);
    told.Store(&active->stored);
    AddCheck(run, active->stored, writes);
  };
  if (!due) return use_.board->Post(run.number, found, known, more);
  WriteSet writes;
  AddSnapshot(run, active, &writes);
  use_.board->Post(run.number, found, known, more, std::move(writes));
}

void LiveChecks::AddSnapshot(const RunView& run, Active* active,
                             WriteSet* writes) {
  const absl::Time begin = absl::Now();
  const std::string bytes = active->check->Save().SerializeAsString();
  const absl::Duration cost =
      std::max(absl::Now() - begin, absl::Seconds(bytes.size() / kWriteRate));
  active->saved_batches = active->check->batches();
  active->next_snapshot =
      begin + std::max(use_.snapshot_every, cost / kSnapshotShare);
  spdlog::debug("check saved run={} batches_read={} bytes={} us={}", run.id,
                active->saved_batches, bytes.size(),
                absl::ToInt64Microseconds(cost));
  writes->Put(Table::kRuns, SnapshotKey(run.number), bytes);
}

// What was found is told already.
void LiveChecks::SaveAll() {
  for (auto& [id, active] : active_) {
    if (active.check == nullptr ||
        active.check->batches() == active.saved_batches) {
      continue;
    }
    const std::optional<RunView> run = use_.registry->View(id);
    if (!run.has_value()) continue;
    WriteSet writes;
    AddSnapshot(*run, &active, &writes);
    use_.store->Write(std::move(writes), nullptr);
  }
}

void LiveChecks::Fail(const RunView& run, const absl::Status& why,
                      Active* active) {
  active->check.reset();
  active->error = std::string(why.message());
  spdlog::warn("run is not checked run={} error={}", run.id,
               QuotePrintable(active->error));
}

void LiveChecks::Finish(const RunView& run, Active* active) {
  const uint32_t set_version = active->stored.set_version();
  active->told.Add(run, *active->check);
  active->stored = Summarise(active->check->checker().Summary());
  active->stored.set_set_version(set_version);
  active->stored.set_finished(true);
  active->told.Store(&active->stored);
  active->stored.set_processes(run.processes.size());
  active->stored.set_batches(BatchesOf(run));
  const std::map<uint32_t, uint32_t> ends = EndsOf(run);
  *active->stored.mutable_ends() = {ends.begin(), ends.end()};
  use_.board->KeepOnly(run.id, run.number,
                       active->check->checker().Violations());
  active->check.reset();  // the memory of a whole run
  WriteSet writes;
  AddCheck(run, active->stored, &writes);
  writes.Delete(Table::kRuns, SnapshotKey(run.number));
  use_.store->Write(std::move(writes), nullptr);
  Publish(run.id, ToApi(active->stored));
  spdlog::info("check finished run={} set={} decided={} violated={} total={}",
               run.id, QuotePrintable(run.check_set), active->stored.decided(),
               active->stored.violated(), active->stored.total());
}

void LiveChecks::Publish(const std::string& run,
                         const v1::CheckProgress& progress) {
  {
    absl::MutexLock lock(&mutex_);
    progress_[run] = progress;
  }
  if (progress.finished()) use_.board->Wake();
}

void LiveChecks::AddProgress(v1::Run* run) const {
  if (run->check_set().empty()) return;
  *run->mutable_check() = Progress(run->id()).value_or(v1::CheckProgress());
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
