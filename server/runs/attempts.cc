#include "server/runs/attempts.h"

#include <algorithm>

namespace traincheck {
namespace {

bool HasGroup(const stored::Process& process) {
  return process.has_world() && process.world() > 1;
}

// Started after the other has ended; also if nobody knows when it started.
bool CameAfter(const stored::Process& process, const stored::Process& ended) {
  return process.started_unix_ns() == 0 ||
         process.started_unix_ns() >= ended.state_since_unix_ns();
}

bool IsChildOfAny(const RunState& run, const stored::Process& process) {
  return std::any_of(run.processes.begin(), run.processes.end(),
                     [&](const auto& entry) {
                       return IsChildOf(process, entry.second.books);
                     });
}

// Is the attempt over, as far as `process` is concerned? Processes without a
// group contest no place: a script may start several. They make an attempt of
// their own only behind all those before.
bool IsOver(const RunState& run, uint32_t attempt,
            const stored::Process& process) {
  bool any = false;
  bool all_ended_before = true;
  for (const auto& [number, entry] : run.processes) {
    const stored::Process& other = entry.books;
    const bool comparable =
        number < process.number() && other.attempt() == attempt &&
        IsMain(other) && other.has_rank() && other.place_conflict().empty() &&
        HasGroup(other) == HasGroup(process);
    if (!comparable) continue;
    any = true;
    const bool ended_before = HasEnded(other) && CameAfter(process, other);
    if (HasGroup(process) && ended_before &&
        (other.rank() == process.rank() || other.world() != process.world())) {
      return true;
    }
    all_ended_before &= ended_before;
  }
  return any && all_ended_before &&
         (HasGroup(process) || !IsChildOfAny(run, process));
}

}  // namespace

uint32_t FittingAttempt(const RunState& run, const stored::Process& process) {
  uint32_t attempt = process.attempt();
  while (IsOver(run, attempt, process)) ++attempt;
  return attempt;
}

bool IsChildOf(const stored::Process& process, const stored::Process& parent) {
  return process.parent_pid() != 0 && process.parent_pid() == parent.pid() &&
         process.host() == parent.host() &&
         process.boot_id() == parent.boot_id() &&
         process.start_ticks() >= parent.start_ticks();
}

bool SamePlace(const stored::Process& a, const stored::Process& b) {
  return a.kind() == b.kind() && a.has_rank() == b.has_rank() &&
         a.rank() == b.rank() && a.world() == b.world();
}

}  // namespace traincheck
