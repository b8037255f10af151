#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "server/runs/registry.h"

// How the processes of runs that have ended leave memory and come back. What is
// shelved equals what the store holds: nothing of it is on its way there.
namespace traincheck::server {
namespace {

// REQUIRES: `run` has none yet.
absl::Status ReadProcesses(const Store& store, absl::Time now, RunState* run) {
  const uint64_t number = run->run.number();
  absl::Status bad;
  const absl::Status scanned = store.Scan(
      Table::kRuns, ProcessKey(number, 0), ProcessKey(number + 1, 0),
      [&](std::string_view, std::string_view value) {
        stored::Process books;
        if (!books.ParseFromArray(value.data(), value.size())) {
          bad = absl::DataLossError(absl::StrCat(
              "a stored process of run ", run->run.id(), " does not parse"));
          return false;
        }
        run->AddStored(std::move(books), now);
        return true;
      });
  return scanned.ok() ? bad : scanned;
}

}  // namespace

absl::StatusOr<const RunState*> Registry::Whole(const std::string& id,
                                                RunState* read) const {
  const auto at = runs_.find(id);
  if (at == runs_.end()) return NoSuchRun(id);
  if (!at->second.shelved) return &at->second;
  // Not into the registry: a query is over in a moment, and a list of all runs
  // would bring all of their processes back into memory.
  read->run = at->second.run;
  if (absl::Status s = ReadProcesses(store_, options_.now(), read); !s.ok())
    return s;
  return read;
}

absl::Status Registry::TakeOffShelf(RunState* run) {
  if (!run->shelved) return absl::OkStatus();
  // Read aside: if the store fails, the run stays shelved as it was.
  RunState whole;
  whole.run = run->run;
  if (absl::Status s = ReadProcesses(store_, options_.now(), &whole); !s.ok())
    return s;
  *run = std::move(whole);
  resting_.insert(run->run.id());
  return absl::OkStatus();
}

// Called with each tick. It looks only at runs that have ended a moment ago
// (RegistryOptions::shelve_after), not at all that were ever stored.
void Registry::ShelveWhatRests() {
  const absl::Time now = options_.now();
  for (auto id = resting_.begin(); id != resting_.end();) {
    RunState& run = runs_.at(*id);
    const absl::Time ended = absl::FromUnixNanos(run.run.ended_unix_ns());
    // A write on its way would be missed by a reader of the store, and a relay
    // that is still connected writes the processes in memory.
    if (now - ended < options_.shelve_after || run.pending_writes > 0 ||
        !run.CheckAtRest().ok()) {
      ++id;
      continue;
    }
    RunState shelved;
    // The one sum of its processes that is needed while they are away:
    // retention goes by it.
    shelved.shelved_bytes = run.StoredBytes();
    shelved.run = std::move(run.run);
    shelved.shelved = true;
    run = std::move(shelved);
    id = resting_.erase(id);
  }
}

size_t Registry::RunsInMemory() const {
  absl::MutexLock lock(&mutex_);
  // No run is in both sets; those in neither are shelved.
  return not_ended_.size() + resting_.size();
}

}  // namespace traincheck::server
