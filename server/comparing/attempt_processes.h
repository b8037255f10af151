// The processes of one attempt of a run, by what makes them comparable with
// those of another run: ranks, and the workers of their loaders.
//
// Threads: plain values.
#ifndef TRAINCHECK_SERVER_COMPARING_ATTEMPT_PROCESSES_H_
#define TRAINCHECK_SERVER_COMPARING_ATTEMPT_PROCESSES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/runs/registry.h"

namespace traincheck::server {

struct RankKey {
  int32_t rank = 0;
  // Among the trainings without a process group that have this place, or the
  // programs that took it over, in the order in which they came.
  uint32_t ordinal = 0;

  auto operator<=>(const RankKey&) const = default;
};

struct WorkerKey {
  RankKey owner;
  uint32_t worker = 0;
  uint32_t pass = 0;  // among its owner's workers of this number

  auto operator<=>(const WorkerKey&) const = default;
};

struct AttemptProcesses {
  uint32_t attempt = 0;
  int32_t world = 0;  // 0: not known
  std::map<RankKey, RunView::Process> ranks;
  std::map<WorkerKey, RunView::Process> workers;
};

// Of the last attempt in which something trained, unless one is named.
// `identities`: the same run as the registry describes it to clients. NotFound
// where nothing trained in the attempt.
[[nodiscard]] absl::StatusOr<AttemptProcesses> ProcessesOf(
    const RunView& run, const v1::Run& identities,
    std::optional<uint32_t> attempt);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_COMPARING_ATTEMPT_PROCESSES_H_
