#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "server/runs/registry.h"
#include "server/store/run_range.h"

// How runs leave the registry.
namespace traincheck::server {
namespace {

Registry::Withdrawn Sum(const RunState& run) {
  Registry::Withdrawn sum;
  sum.number = run.run.number();
  for (const auto& [number, process] : run.processes) {
    sum.records += process.books.stored_records();
  }
  sum.bytes = run.StoredBytes();
  return sum;
}

}  // namespace

// The write is only queued: the caller waits for the disk without the
// registry's lock, which ingest needs (RunCleaner::Keep).
absl::Status Registry::Keep(const std::string& run, bool keep) {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(run);
  if (at == runs_.end()) return NoSuchRun(run);
  at->second.run.set_kept(keep);
  WriteSet writes;
  PutRun(at->second, &writes);
  store_.Write(std::move(writes), nullptr);
  return absl::OkStatus();
}

absl::StatusOr<RunState*> Registry::AtRest(const std::string& run,
                                           const RunPins& pins) {
  const auto at = runs_.find(run);
  if (at == runs_.end()) return NoSuchRun(run);
  // What is counted, and what DropRecords marks, are its processes, which a
  // shelved run has on disk alone.
  if (absl::Status s = TakeOffShelf(&at->second); !s.ok()) return s;
  if (absl::Status s = at->second.CheckAtRest(); !s.ok()) return s;
  // Under the registry's lock, so that a reader who holds first is seen
  // (run_pins.h).
  if (pins.IsPinned(run)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "run ", run, " is being read by a job: see traincheckctl jobs list"));
  }
  return &at->second;
}

absl::StatusOr<Registry::Withdrawn> Registry::Withdraw(const std::string& run,
                                                       const RunPins& pins) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<RunState*> state = AtRest(run, pins);
  if (!state.ok()) return state.status();
  const Withdrawn withdrawn = Sum(**state);
  // The owner's relays may send again while the deletion is at work; Release
  // adds the bytes back if that fails.
  use_of_owners_.Subtract((*state)->run.owner(), withdrawn.bytes);
  // The run is kept until Release: relays that come meanwhile are refused with
  // Unavailable and come back, and a deletion that fails gives back the run as
  // it was.
  withdrawn_[run] = std::move(**state);
  runs_.erase(run);
  resting_.erase(run);
  return withdrawn;
}

// REQUIRES: Withdraw has given the run out, and nobody has released it since.
void Registry::Release(const std::string& run, bool deleted) {
  absl::MutexLock lock(&mutex_);
  const auto at = withdrawn_.find(run);
  if (!deleted) {
    use_of_owners_.Add(at->second.run.owner(), at->second.StoredBytes());
    // AtRest took it off the shelf, so its processes are in memory and it
    // rests.
    runs_[run] = std::move(at->second);
    resting_.insert(run);
  }
  withdrawn_.erase(at);
}

absl::StatusOr<Registry::Withdrawn> Registry::DropRecords(
    const std::string& run, const RunPins& pins) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<RunState*> at_rest = AtRest(run, pins);
  if (!at_rest.ok()) return at_rest.status();
  RunState& state = **at_rest;
  if (state.run.kept()) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", run, " is kept: see traincheckctl runs keep"));
  }
  const Withdrawn dropped = Sum(state);
  spdlog::info("records deleted by retention run={} records={} bytes={}", run,
               dropped.records, dropped.bytes);
  // The numbers of batches stay, because a check that has finished is known by
  // them (IsFinished). Only the bytes are gone.
  state.run.set_records_deleted_unix_ns(absl::ToUnixNanos(options_.now()));
  WriteSet writes;
  PutRun(state, &writes);
  use_of_owners_.Subtract(state.run.owner(), dropped.bytes);
  for (auto& [number, process] : state.processes) {
    process.books.set_records_deleted(true);
    process.books.set_stored_bytes(0);
    process.books.set_quarantined_bytes(0);
    writes.Put(Table::kRuns, ProcessKey(dropped.number, number),
               process.books.SerializeAsString());
  }
  // In one write with the books, which would otherwise count records that are
  // gone.
  DeleteRecordsOf(dropped.number, &writes);
  // Until the write is done the run is not shelved: a reader of the store would
  // find the books of before.
  ++state.pending_writes;
  store_.Write(std::move(writes), [this, run, number = dropped.number] {
    absl::MutexLock lock(&mutex_);
    if (RunState* written = FindRun(run, number)) --written->pending_writes;
  });
  return dropped;
}

}  // namespace traincheck::server
