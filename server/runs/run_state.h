// One run and its processes in memory, and what follows from them.
//
// Threads: plain value; the registry synchronises.
#ifndef TRAINCHECK_SERVER_RUNS_RUN_STATE_H_
#define TRAINCHECK_SERVER_RUNS_RUN_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/runs/process_state.h"

namespace traincheck::server {

// A stream's right to write one process.
struct StreamId {
  std::string run;
  uint32_t process = 0;
  uint64_t stream = 0;
};

struct ProcessEntry {
  stored::Process books;
  // Whose stream may write; 0: no stream is open.
  uint64_t stream = 0;
  // What the synced store holds; `books` runs ahead of it.
  uint64_t durable_next_batch = 0;
  std::optional<ProcessEnd> durable_end;
};

struct RunState {
  stored::Run run;
  std::map<uint32_t, ProcessEntry> processes;  // by number; empty if shelved
  // The run has ended and its processes are in the store alone.
  bool shelved = false;
  // Of all processes, as they were when the run was shelved.
  uint64_t shelved_bytes = 0;
  // Writes of processes on their way to the store.
  uint64_t pending_writes = 0;

  // Takes a process in under its number.
  ProcessEntry& Add(stored::Process books);
  // Takes in what the store holds. Nobody streams: one that had not ended is
  // disconnected since `now`.
  void AddStored(stored::Process books, absl::Time now);
  ProcessEntry* Find(const v1::ProcessIdentity& identity);
  // Has no later program recorded in the same process (exec)?
  bool IsLatestImage(const stored::Process& process) const;
  // The main process that a worker serves; null if it is not known.
  const ProcessEntry* OwnerOf(const stored::Process& worker) const;
  // The other main process with a live stream that holds the place of `books`;
  // null if there is none. A process without a group is rank 0 of 1 and
  // contests nothing.
  const ProcessEntry* OtherHolder(const stored::Process& books) const;
  // May its records go? FailedPrecondition if it has not ended, a relay is
  // still connected, or an end is not on disk yet. REQUIRES: not shelved.
  [[nodiscard]] absl::Status CheckAtRest() const;
  // What its stored batches take.
  uint64_t StoredBytes() const;

  // Add's. One process may have run several programs (exec), which are
  // processes of the run of their own; by_identity has the latest.
  std::map<std::pair<std::string, uint64_t>, uint32_t> images;
  std::map<std::string, uint32_t> by_identity;
};

// Goes over all processes of the run. There may be tens of thousands, so
// nothing does that for each process or attempt: tests count such passes, of
// their thread.
inline thread_local uint64_t passes_over_processes = 0;
template <typename Visitor>
void ForEachProcess(const RunState& run, const Visitor& visit) {
  ++passes_over_processes;
  for (const auto& [number, process] : run.processes) visit(process.books);
}

uint32_t LastAttempt(const RunState& run);

// The newest attempts in the places of a run.
struct Starts {
  uint32_t last_attempt = 0;  // of all processes
  std::map<int32_t, uint32_t> by_rank;
  std::map<int32_t, uint32_t> by_world;
};

// StateReason of a process of a run whose last attempt is `last_attempt`.
std::string ReasonOf(const stored::Process& process, uint32_t last_attempt,
                     absl::Time now, absl::Duration lost_after);

// Has the run ended? The time of the last end if all processes have ended and
// either every rank of the last attempt was there or `grace` has passed, in
// which further processes could still announce themselves.
std::optional<absl::Time> EndTime(const RunState& run, absl::Time now,
                                  absl::Duration grace);

v1::Run ToApi(const RunState& run, absl::Time now, absl::Duration lost_after);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_RUN_STATE_H_
