// The violations that the store holds, by run.
//
// Threads: pure functions of the store.
#ifndef TRAINCHECK_SERVER_CHECKING_STORED_VIOLATIONS_H_
#define TRAINCHECK_SERVER_CHECKING_STORED_VIOLATIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/store/store.h"

namespace traincheck::server {

// Status of what stays of a violation that was taken back: its id and revision.
inline constexpr char kTakenBack[] = "taken back";

// Visits each violation of each run, those that were taken back among them.
// DataLoss.
using StoredViolationVisitor =
    std::function<void(uint64_t run, v1::Violation violation)>;
[[nodiscard]] absl::Status VisitStoredViolations(
    const Store& store, const StoredViolationVisitor& visitor);

// Those of run number `run` that are not taken back, by id. DataLoss.
[[nodiscard]] absl::StatusOr<std::vector<v1::Violation>> ReadViolations(
    const Store& store, uint64_t run);

// nullopt: there is none, or it was taken back. DataLoss.
[[nodiscard]] absl::StatusOr<std::optional<v1::Violation>> ReadViolation(
    const Store& store, uint64_t run, const std::string& id);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_STORED_VIOLATIONS_H_
