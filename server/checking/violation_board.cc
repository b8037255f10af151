#include "server/checking/violation_board.h"

#include <algorithm>
#include <utility>

#include "base/logging.h"
#include "server/store/keys.h"

namespace traincheck {
namespace {

bool SameBut(const v1::Violation& a, v1::Violation b) {
  b.set_revision(a.revision());
  b.set_first_seen_unix_ns(a.first_seen_unix_ns());
  return a.SerializeAsString() == b.SerializeAsString();
}

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
  api.set_status(violation.open ? "open" : "ended");
  api.set_expected(violation.expected);
  api.set_seen(violation.seen);
  api.mutable_evidence()->Assign(violation.evidence.begin(),
                                 violation.evidence.end());
  return api;
}

absl::StatusOr<std::unique_ptr<ViolationBoard>> ViolationBoard::Load(
    Store* store, Clock now) {
  std::unique_ptr<ViolationBoard> board(
      new ViolationBoard(store, std::move(now)));
  absl::MutexLock lock(&board->mutex_);
  absl::Status bad;
  const absl::Status scanned = store->Scan(
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
            board->by_revision_[violation.revision()] = violation.id();
            board->by_id_[violation.id()] = std::move(violation);
            return true;
          });
  if (!scanned.ok()) return scanned;
  if (!bad.ok()) return bad;
  return board;
}

void ViolationBoard::Post(uint64_t run, const std::vector<Violation>& found) {
  WriteSet writes;
  absl::MutexLock lock(&mutex_);
  for (const Violation& violation : found) {
    v1::Violation next = ToApi(violation);
    v1::Violation& known = by_id_[next.id()];
    const bool is_new = known.id().empty();
    if (!is_new && (next.count() < known.count() || SameBut(known, next))) {
      continue;
    }
    if (is_new) {
      spdlog::warn("violation run={} id={} relation={} text=\"{}\"",
                   violation.run, violation.id, violation.relation,
                   violation.text);
    }
    next.set_first_seen_unix_ns(is_new ? absl::ToUnixNanos(now_())
                                       : known.first_seen_unix_ns());
    next.set_revision(++revision_);
    by_revision_.erase(known.revision());
    by_revision_[revision_] = next.id();
    writes.Put(Table::kViolations, ViolationKey(run, next.id()),
               next.SerializeAsString());
    known = std::move(next);
  }
  if (writes.entries().empty()) return;
  store_.Write(std::move(writes), nullptr);
  changed_.SignalAll();
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

ViolationBoard::Changes ViolationBoard::ChangesAfter(
    uint64_t after, const std::string& run) const {
  absl::MutexLock lock(&mutex_);
  Changes changes = {.violations = {}, .revision = revision_};
  for (auto at = by_revision_.upper_bound(after); at != by_revision_.end();
       ++at) {
    const v1::Violation& violation = by_id_.at(at->second);
    if (Concerns(run, violation)) changes.violations.push_back(violation);
  }
  return changes;
}

void ViolationBoard::WaitForChange(uint64_t after,
                                   absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  if (revision_ <= after) changed_.WaitWithTimeout(&mutex_, patience);
}

void ViolationBoard::Wake() {
  absl::MutexLock lock(&mutex_);
  changed_.SignalAll();
}

}  // namespace traincheck
