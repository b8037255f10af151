#include "server/checking/stored_violations.h"

#include <string_view>
#include <utility>

#include "server/store/keys.h"

namespace traincheck::server {
namespace {

// Written by this daemon or an older one; that it does not parse means damage.
absl::StatusOr<v1::Violation> Parse(std::string_view value) {
  v1::Violation violation;
  if (!violation.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return absl::DataLossError("a stored violation does not parse");
  }
  return violation;
}

// Those with from <= key < to.
absl::Status Visit(const Store& store, const std::string& from,
                   const std::string& to,
                   const StoredViolationVisitor& visitor) {
  absl::Status bad;
  const absl::Status scanned = store.Scan(
      Table::kViolations, from, to,
      [&](std::string_view key, std::string_view value) {
        absl::StatusOr<v1::Violation> violation = Parse(value);
        const std::optional<uint64_t> run = RunOfViolationKey(key);
        // A damaged violation ends the visit with an error: without it a run
        // would look healthier than it was.
        if (!violation.ok() || !run.has_value()) {
          bad = violation.ok() ? absl::DataLossError(
                                     "the key of a stored violation is short")
                               : violation.status();
          return false;
        }
        visitor(*run, *std::move(violation));
        return true;
      });
  return scanned.ok() ? bad : scanned;
}

}  // namespace

absl::Status VisitStoredViolations(const Store& store,
                                   const StoredViolationVisitor& visitor) {
  // Above every key: a key begins with the eight bytes of a run's number.
  return Visit(store, "", std::string(9, '\xff'), visitor);
}

// What was taken back leaves only a revision in the store (KeepOnly) and is not
// a violation any more.
absl::StatusOr<std::vector<v1::Violation>> ReadViolations(const Store& store,
                                                          uint64_t run) {
  std::vector<v1::Violation> violations;
  const absl::Status read =
      Visit(store, ViolationKey(run, ""), ViolationKey(run + 1, ""),
            [&](uint64_t, v1::Violation violation) {
              if (violation.status() == kTakenBack) return;
              violations.push_back(std::move(violation));
            });
  if (!read.ok()) return read;
  return violations;
}

absl::StatusOr<std::optional<v1::Violation>> ReadViolation(
    const Store& store, uint64_t run, const std::string& id) {
  const absl::StatusOr<std::optional<std::string>> value =
      store.Get(Table::kViolations, ViolationKey(run, id));
  if (!value.ok()) return value.status();
  if (!value->has_value()) return std::nullopt;
  absl::StatusOr<v1::Violation> violation = Parse(**value);
  if (!violation.ok()) return violation.status();
  if (violation->status() == kTakenBack) return std::nullopt;
  return *std::move(violation);
}

}  // namespace traincheck::server
