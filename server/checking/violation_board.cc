#include "server/checking/violation_board.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/logging.h"
#include "base/printable_text.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

bool SameBut(const v1::Violation& a, v1::Violation b) {
  b.set_revision(a.revision());
  b.set_first_seen_unix_ns(a.first_seen_unix_ns());
  return a.SerializeAsString() == b.SerializeAsString();
}

// Status of what stays of a violation that was taken back.
constexpr char kTakenBack[] = "taken back";

bool Concerns(const std::string& run, const v1::Violation& violation) {
  return run.empty() || violation.run() == run;
}

}  // namespace

v1::Violation ToApi(const Violation& violation) {
  v1::Violation api;
  api.set_id(violation.id);
  api.set_run(violation.run);
  api.set_attempt(violation.attempt);
  api.set_invariant_id(violation.invariant_id);
  api.set_relation(violation.relation);
  api.set_text(violation.text);
  if (violation.first_step) api.set_first_step(*violation.first_step);
  if (violation.last_step) api.set_last_step(*violation.last_step);
  api.set_count(violation.count);
  api.mutable_ranks()->Assign(violation.ranks.begin(), violation.ranks.end());
  api.mutable_apis()->Assign(violation.apis.begin(), violation.apis.end());
  api.mutable_variables()->Assign(violation.variables.begin(),
                                  violation.variables.end());
  api.mutable_sites()->Assign(violation.sites.begin(), violation.sites.end());
  api.mutable_callers()->Assign(violation.callers.begin(),
                                violation.callers.end());
  api.set_status(violation.open ? "open" : "ended");
  api.set_expected(violation.expected);
  api.set_seen(violation.seen);
  api.mutable_evidence()->Assign(violation.evidence.begin(),
                                 violation.evidence.end());
  api.set_why(violation.notes.why);
  api.set_fix(violation.notes.fix);
  api.set_reference(violation.notes.reference);
  api.set_grade(violation.notes.advice ? "advice" : "alert");
  api.set_headline(violation.headline);
  api.set_incident(violation.grouped.incident);
  api.set_cause(violation.grouped.cause);
  api.set_incident_grade(violation.grouped.alerts ? "alert" : "advice");
  api.set_rung(NameOf(violation.place.rung));
  api.set_basis(violation.basis);
  return api;
}

absl::StatusOr<std::unique_ptr<ViolationBoard>> ViolationBoard::Load(
    Store* store, Clock now) {
  std::unique_ptr<ViolationBoard> board(
      new ViolationBoard(store, std::move(now)));
  absl::MutexLock lock(&board->mutex_);
  absl::Status bad;
  absl::Status scanned = store->Scan(
      Table::kViolations, "", std::string(9, '\xff'),
      [&](std::string_view, std::string_view value)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(board->mutex_) {
            v1::Violation violation;
            if (!violation.ParseFromArray(value.data(), value.size())) {
              bad = absl::DataLossError("a stored violation does not parse");
              return false;
            }
            board->revision_ =
                std::max<uint64_t>(board->revision_, violation.revision());
            if (violation.status() == kTakenBack) return true;
            board->by_revision_[violation.revision()] = violation.id();
            board->by_id_[violation.id()] = std::move(violation);
            return true;
          });
  if (!scanned.ok()) return scanned;
  if (!bad.ok()) return bad;
  board->durable_revision_ = board->revision_;
  return board;
}

bool ViolationBoard::Update(uint64_t run, const Violation& found, Known how,
                            WriteSet* writes) {
  v1::Violation next = ToApi(found);
  const auto at = by_id_.find(next.id());
  const bool is_new = at == by_id_.end();
  if (!is_new && how == Known::kKeep && next.count() <= at->second.count()) {
    return false;
  }
  if (!is_new && SameBut(at->second, next)) return false;
  if (is_new) {
    ++found_;
    spdlog::warn("violation run={} id={} relation={} text={}", found.run,
                 found.id, found.relation, QuotePrintable(found.text));
  } else {
    by_revision_.erase(at->second.revision());
  }
  next.set_first_seen_unix_ns(is_new ? absl::ToUnixNanos(now_())
                                     : at->second.first_seen_unix_ns());
  next.set_revision(++revision_);
  by_revision_[revision_] = next.id();
  writes->Put(Table::kViolations, ViolationKey(run, next.id()),
              next.SerializeAsString());
  by_id_[found.id] = std::move(next);
  return true;
}

void ViolationBoard::Post(uint64_t run, const std::vector<Violation>& found,
                          Known known, const MoreWrites& more,
                          WriteSet writes) {
  absl::MutexLock lock(&mutex_);
  bool changed = false;
  for (const Violation& violation : found) {
    changed |= Update(run, violation, known, &writes);
  }
  if (changed && more) more(&writes);
  if (!writes.entries().empty()) Write(std::move(writes));
}

void ViolationBoard::Write(WriteSet writes) {
  store_.Write(std::move(writes), [this, revision = revision_] {
    absl::MutexLock lock(&mutex_);
    durable_revision_ = std::max(durable_revision_, revision);
    changed_.SignalAll();
  });
}

void ViolationBoard::KeepOnly(const std::string& run, uint64_t number,
                              const std::vector<Violation>& all) {
  std::set<std::string> kept;
  for (const Violation& violation : all) kept.insert(violation.id);
  WriteSet writes;
  absl::MutexLock lock(&mutex_);
  for (auto at = by_id_.begin(); at != by_id_.end();) {
    if (at->second.run() != run || kept.count(at->first)) {
      ++at;
      continue;
    }
    spdlog::info("violation taken back run={} id={}", run, at->first);
    // The revision stays taken, for watchers that have seen it.
    v1::Violation gone;
    gone.set_id(at->first);
    gone.set_revision(at->second.revision());
    gone.set_status(kTakenBack);
    writes.Put(Table::kViolations, ViolationKey(number, at->first),
               gone.SerializeAsString());
    by_revision_.erase(at->second.revision());
    at = by_id_.erase(at);
  }
  if (!writes.entries().empty()) Write(std::move(writes));
}

void ViolationBoard::Remove(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  for (auto at = by_id_.begin(); at != by_id_.end();) {
    if (at->second.run() == run) {
      by_revision_.erase(at->second.revision());
      at = by_id_.erase(at);
    } else {
      ++at;
    }
  }
}

std::vector<v1::Violation> ViolationBoard::List(const std::string& run) const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Violation> violations;
  for (const auto& [id, violation] : by_id_) {
    if (Concerns(run, violation)) violations.push_back(violation);
  }
  std::stable_sort(violations.begin(), violations.end(),
                   [](const v1::Violation& a, const v1::Violation& b) {
                     return a.first_seen_unix_ns() < b.first_seen_unix_ns();
                   });
  return violations;
}

std::optional<v1::Violation> ViolationBoard::Find(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = by_id_.find(id);
  if (at == by_id_.end()) return std::nullopt;
  return at->second;
}

ViolationBoard::Counts ViolationBoard::Count() const {
  absl::MutexLock lock(&mutex_);
  Counts counts = {.violations = by_id_.size(), .found = found_};
  for (const auto& [id, violation] : by_id_) {
    const bool leads =
        violation.incident().empty() || violation.incident() == id;
    if (!leads || violation.status() != "open") continue;
    // "" (older) is an alert.
    ++(violation.incident_grade() == "advice" ? counts.advice : counts.alerts);
  }
  return counts;
}

ViolationBoard::Changes ViolationBoard::ChangesAfter(uint64_t after,
                                                     const std::string& run,
                                                     size_t limit) const {
  absl::MutexLock lock(&mutex_);
  Changes changes = {.violations = {}, .revision = durable_revision_};
  for (auto at = by_revision_.upper_bound(after);
       at != by_revision_.end() && at->first <= durable_revision_; ++at) {
    const v1::Violation& violation = by_id_.at(at->second);
    if (!Concerns(run, violation)) continue;
    if (changes.violations.size() == limit) {
      changes.revision = changes.violations.back().revision();
      changes.complete = false;
      break;
    }
    changes.violations.push_back(violation);
  }
  return changes;
}

void ViolationBoard::WaitForChange(uint64_t after,
                                   absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  if (durable_revision_ <= after) changed_.WaitWithTimeout(&mutex_, patience);
}

void ViolationBoard::Wake() {
  absl::MutexLock lock(&mutex_);
  changed_.SignalAll();
}

}  // namespace traincheck::server
