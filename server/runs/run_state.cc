#include "server/runs/run_state.h"

#include <algorithm>
#include <set>

namespace traincheck {
namespace {

uint32_t LastAttempt(const RunState& run) {
  uint32_t attempt = 0;
  for (const auto& [number, process] : run.processes) {
    attempt = std::max(attempt, process.books.attempt());
  }
  return attempt;
}

// World size of the last attempt; 0: not known.
int32_t World(const RunState& run) {
  const uint32_t attempt = LastAttempt(run);
  int32_t world = 0;
  for (const auto& [number, process] : run.processes) {
    if (process.books.attempt() == attempt && IsMain(process.books)) {
      world = std::max(world, process.books.world());
    }
  }
  return world;
}

bool AllRanksCame(const RunState& run) {
  const uint32_t attempt = LastAttempt(run);
  std::set<int32_t> ranks;
  for (const auto& [number, process] : run.processes) {
    const stored::Process& books = process.books;
    if (books.attempt() == attempt && IsMain(books) && books.has_rank()) {
      ranks.insert(books.rank());
    }
  }
  const int32_t world = World(run);
  return world > 0 && ranks.size() == static_cast<size_t>(world);
}

v1::RunStatus StatusOf(const RunState& run) {
  if (run.run.ended_unix_ns() == 0) return v1::RUN_STATUS_RUNNING;
  bool any_main = false;
  bool any_silent = false;
  for (const auto& [number, process] : run.processes) {
    if (IsLostRank(process.books)) return v1::RUN_STATUS_LOST;
    any_main |= IsMain(process.books);
    any_silent |= process.books.state() == stored::STATE_SILENT;
  }
  return !any_main && any_silent ? v1::RUN_STATUS_LOST : v1::RUN_STATUS_ENDED;
}

void AddSteps(const stored::Process& process, v1::Run* api) {
  if (!IsMain(process) || !process.has_first_step()) return;
  if (!api->has_first_step() || process.first_step() < api->first_step()) {
    api->set_first_step(process.first_step());
  }
  if (!api->has_last_step() || process.last_step() > api->last_step()) {
    api->set_last_step(process.last_step());
  }
}

}  // namespace

ProcessEntry* RunState::Find(const v1::ProcessIdentity& identity) {
  for (auto& [number, process] : processes) {
    if (IsSameProcess(identity, process.books)) return &process;
  }
  return nullptr;
}

const ProcessEntry* RunState::OtherHolder(const stored::Process& books) const {
  const auto contests = [](const stored::Process& process) {
    return IsMain(process) && process.has_rank() && process.world() > 1;
  };
  if (!contests(books)) return nullptr;
  for (const auto& [number, other] : processes) {
    if (number != books.number() && other.stream != 0 &&
        other.books.place_conflict().empty() && contests(other.books) &&
        other.books.attempt() == books.attempt() &&
        other.books.rank() == books.rank()) {
      return &other;
    }
  }
  return nullptr;
}

std::optional<absl::Time> EndTime(const RunState& run, absl::Time now,
                                  absl::Duration grace) {
  uint64_t last_unix_ns = 0;
  for (const auto& [number, process] : run.processes) {
    if (!HasEnded(process.books)) return std::nullopt;
    last_unix_ns = std::max<uint64_t>(last_unix_ns,  //
                                      process.books.state_since_unix_ns());
  }
  const absl::Time last = absl::FromUnixNanos(last_unix_ns);
  if (!AllRanksCame(run) && now - last < grace) return std::nullopt;
  return last;
}

v1::Run ToApi(const RunState& run, absl::Time now, absl::Duration lost_after) {
  v1::Run api;
  api.set_id(run.run.id());
  api.set_experiment(run.run.experiment());
  api.set_role(static_cast<v1::RunRole>(run.run.role()));
  api.set_status(StatusOf(run));
  api.set_started_unix_ns(run.run.started_unix_ns());
  api.set_ended_unix_ns(run.run.ended_unix_ns());
  api.set_world(World(run));
  api.set_check_set(run.run.check_set());
  std::set<uint32_t> attempts;
  for (const auto& [number, process] : run.processes) {
    const v1::Process shown = ToApi(process.books, now, lost_after);
    attempts.insert(shown.attempt());
    AddSteps(process.books, &api);
    api.set_records(api.records() + shown.records());
    api.set_dropped(api.dropped() + shown.dropped());
    api.set_lost(api.lost() + shown.lost());
    api.set_stored_bytes(api.stored_bytes() + shown.stored_bytes());
    api.set_quarantined_batches(api.quarantined_batches() +
                                process.books.quarantined_batches());
    *api.add_processes() = shown;
  }
  api.set_attempts(attempts.size());
  return api;
}

}  // namespace traincheck
