#include "server/checking/violation_board.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/logging.h"
#include "base/printable_text.h"
#include "server/checking/stored_violations.h"
#include "server/checking/violation_message.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

// The revision and the first sight are the board's own; the check says nothing
// of them.
bool SameBut(const v1::Violation& a, v1::Violation b) {
  b.set_revision(a.revision());
  b.set_first_seen_unix_ns(a.first_seen_unix_ns());
  return a.SerializeAsString() == b.SerializeAsString();
}

using ByGrade = ViolationBoard::ByGrade;

// "" (older) is an alert.
void Count(const std::string& grade, ByGrade* counts) {
  ++(grade == "advice" ? counts->advice : counts->alerts);
}

void Count(const v1::Violation& violation, ViolationBoard::Counts* counts) {
  Count(violation.grade(), &counts->violations);
  // An incident counts once, by its lead.
  const bool leads =
      violation.incident().empty() || violation.incident() == violation.id();
  if (!leads || violation.status() != "open") return;
  Count(violation.incident_grade(), &counts->open_incidents);
}

void Add(const ByGrade& more, ByGrade* counts) {
  counts->alerts += more.alerts;
  counts->advice += more.advice;
}

void Add(const ViolationBoard::Counts& more, ViolationBoard::Counts* counts) {
  Add(more.violations, &counts->violations);
  Add(more.open_incidents, &counts->open_incidents);
}

// REQUIRES: so many were added; the counts are unsigned.
void Subtract(const ByGrade& less, ByGrade* counts) {
  counts->alerts -= less.alerts;
  counts->advice -= less.advice;
}

void Subtract(const ViolationBoard::Counts& less,
              ViolationBoard::Counts* counts) {
  Subtract(less.violations, &counts->violations);
  Subtract(less.open_incidents, &counts->open_incidents);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ViolationBoard>> ViolationBoard::Load(
    Store* store, Clock now) {
  std::unique_ptr<ViolationBoard> board(
      new ViolationBoard(store, std::move(now)));
  absl::MutexLock lock(&board->mutex_);
  const absl::Status read = VisitStoredViolations(
      *store, [&](uint64_t run, const v1::Violation& violation)
                  ABSL_EXCLUSIVE_LOCKS_REQUIRED(board->mutex_) {
                    board->AddStored(run, violation);
                  });
  if (!read.ok()) return read;
  board->durable_revision_ = board->revision_;
  return board;
}

// Load calls this for each stored violation, of which there may be hundreds of
// thousands. Each leaves only its place and revision in memory and counts into
// the sums of its run.
void ViolationBoard::AddStored(uint64_t run, const v1::Violation& violation) {
  // Also of those that were taken back: no revision is given twice.
  revision_ = std::max<uint64_t>(revision_, violation.revision());
  if (violation.status() == kTakenBack) return;
  OfRun& of = OfRunNumber(run, violation.run());
  of.shelved = true;
  // Changes point to the ids in run_of_, which stay where they are until they
  // are erased.
  const auto known = run_of_.emplace(violation.id(), run).first;
  by_revision_[violation.revision()] = {run, &known->first};
  Counts counts;
  server::Count(violation, &counts);
  Add(counts, &of.shelved_counts);
  Add(counts, &shelved_);
}

// Runs are kept by number: a name may be another run's after a deletion.
ViolationBoard::OfRun& ViolationBoard::OfRunNumber(uint64_t number,
                                                   const std::string& run) {
  const auto [at, is_new] = runs_.try_emplace(number);
  if (is_new) {
    at->second.run = run;
    numbers_[run] = number;
  }
  return at->second;
}

std::optional<uint64_t> ViolationBoard::NumberOf(const std::string& run) const {
  const auto number = numbers_.find(run);
  if (number == numbers_.end()) return std::nullopt;
  return number->second;
}

absl::Status ViolationBoard::TakeOffShelf(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  const std::optional<uint64_t> number = NumberOf(run);
  if (!number.has_value()) return absl::OkStatus();
  // If it was to leave, it stays.
  leaving_.erase(*number);
  OfRun& of = runs_.at(*number);
  if (!of.shelved) return absl::OkStatus();
  // Under the lock, so that whoever asks finds them in one of the two places.
  absl::StatusOr<std::vector<v1::Violation>> stored =
      ReadViolations(store_, *number);
  if (!stored.ok()) return stored.status();
  for (v1::Violation& violation : *stored) {
    const std::string id = violation.id();
    of.by_id[id] = std::move(violation);
  }
  of.shelved = false;
  Subtract(std::exchange(of.shelved_counts, Counts()), &shelved_);
  return absl::OkStatus();
}

void ViolationBoard::Shelve(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  const std::optional<uint64_t> number = NumberOf(run);
  if (!number.has_value() || runs_.at(*number).shelved) return;
  // Not at once: what a write has not brought to disk yet would be in neither
  // place.
  leaving_.insert(*number);
  ShelveIfStored(*number);
}

void ViolationBoard::ShelveIfStored(uint64_t run) {
  OfRun& of = runs_.at(run);
  // Called once more when the last of its writes is done (OnDurable).
  if (of.pending_writes > 0 || leaving_.erase(run) == 0) return;
  for (const auto& [id, violation] : of.by_id) {
    server::Count(violation, &of.shelved_counts);
  }
  Add(of.shelved_counts, &shelved_);
  of.by_id.clear();
  of.shelved = true;
}

bool ViolationBoard::Update(uint64_t run, const Violation& found, Known how,
                            WriteSet* writes) {
  v1::Violation next = ToApi(found);
  OfRun& of = OfRunNumber(run, found.run);
  const auto at = of.by_id.find(next.id());
  const bool is_new = at == of.by_id.end();
  if (!is_new && how == Known::kKeep && next.count() <= at->second.count()) {
    return false;
  }
  // Without it each turn of a check that goes over known records would raise
  // revisions, and wake every watcher for nothing.
  if (!is_new && SameBut(at->second, next)) return false;
  if (is_new) {
    server::Count(next.grade(), &found_);
    spdlog::warn("violation run={} id={} relation={} text={}", found.run,
                 found.id, found.relation, QuotePrintable(found.text));
  } else {
    // A violation stands under its newest change alone, so watchers get it
    // once.
    by_revision_.erase(at->second.revision());
  }
  // Kept over checks that begin anew: lists are in the order of first sight.
  next.set_first_seen_unix_ns(is_new ? absl::ToUnixNanos(now_())
                                     : at->second.first_seen_unix_ns());
  next.set_revision(++revision_);
  by_revision_[revision_] = {run,
                             &run_of_.emplace(next.id(), run).first->first};
  writes->Put(Table::kViolations, ViolationKey(run, next.id()),
              next.SerializeAsString());
  of.by_id[found.id] = std::move(next);
  return true;
}

// The checks' thread calls this. The caller's writes (a snapshot, how far the
// check has come) go to disk with the violations or not at all.
void ViolationBoard::Post(uint64_t run, const std::vector<Violation>& found,
                          Known known, const MoreWrites& more,
                          WriteSet writes) {
  absl::MutexLock lock(&mutex_);
  bool changed = false;
  for (const Violation& violation : found) {
    changed |= Update(run, violation, known, &writes);
  }
  if (changed && more) more(&writes);
  if (!writes.entries().empty()) Write(run, changed, std::move(writes));
}

void ViolationBoard::Write(uint64_t run, bool changes, WriteSet writes) {
  // One without violations, whose check has saved its state, is not known.
  const auto of = runs_.find(run);
  if (of != runs_.end()) ++of->second.pending_writes;
  // Queued under the lock: writes become durable in the order of their
  // revisions.
  store_.Write(
      std::move(writes),
      [this, run, changes, known = of != runs_.end(), revision = revision_] {
        OnDurable(run, known, changes, revision);
      });
}

void ViolationBoard::OnDurable(uint64_t run, bool known, bool changes,
                               uint64_t revision) {
  absl::MutexLock lock(&mutex_);
  durable_revision_ = std::max(durable_revision_, revision);
  // It may have been deleted meanwhile.
  const auto of = runs_.find(run);
  if (known && of != runs_.end()) {
    --of->second.pending_writes;
    ShelveIfStored(run);
    if (changes) bells_.Ring(of->second.run);
  }
  changed_.SignalAll();
}

void ViolationBoard::KeepOnly(const std::string& run,
                              const std::vector<Violation>& all,
                              const std::set<uint32_t>& unread) {
  std::set<std::string> kept;
  for (const Violation& violation : all) kept.insert(violation.id);
  WriteSet writes;
  absl::MutexLock lock(&mutex_);
  const std::optional<uint64_t> number = NumberOf(run);
  if (!number.has_value()) return;
  auto& by_id = runs_.at(*number).by_id;
  for (auto at = by_id.begin(); at != by_id.end();) {
    if (kept.count(at->first) || unread.count(at->second.attempt())) {
      ++at;
      continue;
    }
    spdlog::info("violation taken back run={} id={}", run, at->first);
    // The revision stays taken, for watchers that have seen it.
    v1::Violation gone;
    gone.set_id(at->first);
    gone.set_revision(at->second.revision());
    gone.set_status(kTakenBack);
    writes.Put(Table::kViolations, ViolationKey(*number, at->first),
               gone.SerializeAsString());
    by_revision_.erase(at->second.revision());
    run_of_.erase(at->first);
    at = by_id.erase(at);
  }
  // Watchers are not woken: the stream has no message for a violation that is
  // gone.
  if (!writes.entries().empty()) Write(*number, false, std::move(writes));
}

// The thread that deletes the run calls this behind the deletion in the store
// and behind CheckQueue::Forget: the checks post nothing more under this
// number.
void ViolationBoard::Remove(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  const std::optional<uint64_t> number = NumberOf(run);
  if (!number.has_value()) return;
  // Over those of all runs: deletions are few, and an index by run would be
  // kept for them alone.
  for (auto at = by_revision_.begin(); at != by_revision_.end();) {
    if (at->second.run == *number) {
      // A copy: what is pointed to goes with the entry.
      run_of_.erase(std::string(*at->second.violation));
      at = by_revision_.erase(at);
    } else {
      ++at;
    }
  }
  Subtract(runs_.at(*number).shelved_counts, &shelved_);
  leaving_.erase(*number);
  runs_.erase(*number);
  numbers_.erase(run);
}

absl::StatusOr<std::vector<v1::Violation>> ViolationBoard::List(
    const std::string& run) const {
  std::vector<v1::Violation> violations;
  std::optional<uint64_t> shelved;
  {
    absl::MutexLock lock(&mutex_);
    const std::optional<uint64_t> number = NumberOf(run);
    if (!number.has_value()) return violations;
    const OfRun& of = runs_.at(*number);
    if (of.shelved) shelved = number;
    for (const auto& [id, violation] : of.by_id) {
      violations.push_back(violation);
    }
  }
  // Without the lock: a read of the disk must not hold up the checker.
  if (shelved.has_value()) {
    auto stored = ReadViolations(store_, *shelved);
    if (!stored.ok()) return stored.status();
    violations = *std::move(stored);
  }
  std::stable_sort(violations.begin(), violations.end(),
                   [](const v1::Violation& a, const v1::Violation& b) {
                     return a.first_seen_unix_ns() < b.first_seen_unix_ns();
                   });
  return violations;
}

// Runs are in the order of their numbers, which is that in which they began.
std::vector<std::string> ViolationBoard::Runs() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> runs;
  for (const auto& [number, of] : runs_) runs.push_back(of.run);
  return runs;
}

absl::StatusOr<std::optional<v1::Violation>> ViolationBoard::Find(
    const std::string& id) const {
  uint64_t run = 0;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = run_of_.find(id);
    if (at == run_of_.end()) return std::nullopt;
    run = at->second;
    const OfRun& of = runs_.at(run);
    if (!of.shelved) return of.by_id.at(id);
  }
  return ReadViolation(store_, run, id);
}

ViolationBoard::Counts ViolationBoard::Count() const {
  absl::MutexLock lock(&mutex_);
  // The counts of shelved runs are kept, so that a scrape of metrics reads
  // nothing from the disk.
  Counts counts = shelved_;
  counts.found = found_;
  for (const auto& [number, of] : runs_) {
    for (const auto& [id, violation] : of.by_id) {
      server::Count(violation, &counts);
    }
  }
  return counts;
}

size_t ViolationBoard::RunsInMemory() const {
  absl::MutexLock lock(&mutex_);
  return std::count_if(runs_.begin(), runs_.end(),
                       [](const auto& run) { return !run.second.shelved; });
}

std::vector<ViolationBoard::Changed> ViolationBoard::FindChanges(
    uint64_t after, const std::string& run, size_t limit,
    Changes* changes) const {
  std::vector<Changed> found;
  absl::MutexLock lock(&mutex_);
  // What is not durable yet might be gone after a crash, so no watcher sees it.
  changes->revision = durable_revision_;
  const std::optional<uint64_t> number = NumberOf(run);
  if (!run.empty() && !number.has_value()) return found;
  uint64_t last = after;
  for (auto at = by_revision_.upper_bound(after);
       at != by_revision_.end() && at->first <= durable_revision_; ++at) {
    const Change& change = at->second;
    if (!run.empty() && change.run != *number) continue;
    // The next page begins behind the last change of this one.
    if (found.size() == limit) {
      changes->revision = last;
      changes->complete = false;
      break;
    }
    last = at->first;
    const OfRun& of = runs_.at(change.run);
    const auto violation = of.by_id.find(*change.violation);
    found.push_back(
        {.run = change.run, .id = *change.violation, .violation = {}});
    // Copied under the lock; those that are shelved are read from the store
    // without it.
    if (violation != of.by_id.end()) found.back().violation = violation->second;
  }
  return found;
}

absl::StatusOr<ViolationBoard::Changes> ViolationBoard::ChangesAfter(
    uint64_t after, const std::string& run, size_t limit) const {
  Changes changes;
  for (Changed& changed : FindChanges(after, run, limit, &changes)) {
    if (!changed.violation.has_value()) {
      auto stored = ReadViolation(store_, changed.run, changed.id);
      if (!stored.ok()) return stored.status();
      if (!stored->has_value()) continue;  // its run was deleted since
      changed.violation = **std::move(stored);
    }
    changes.violations.push_back(*std::move(changed.violation));
  }
  return changes;
}

// A watcher that wants only what comes begins here.
uint64_t ViolationBoard::Revision() const {
  absl::MutexLock lock(&mutex_);
  return durable_revision_;
}

void ViolationBoard::WaitForChange(uint64_t after,
                                   absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  // Once and not in a loop: Wake ends it without a new revision.
  if (durable_revision_ <= after) changed_.WaitWithTimeout(&mutex_, patience);
}

void ViolationBoard::Wake() {
  bells_.RingAll();
  absl::MutexLock lock(&mutex_);
  changed_.SignalAll();
}

}  // namespace traincheck::server
