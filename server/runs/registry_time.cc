#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/logging.h"
#include "server/runs/attempts.h"
#include "server/runs/registry.h"

// How time ends processes and runs.
namespace traincheck::server {

void Registry::Tick() {
  absl::MutexLock lock(&mutex_);
  // A copy, because runs that end leave the set.
  const std::set<std::string> candidates = not_ended_;
  for (const std::string& id : candidates) {
    RunState& run = runs_.at(id);
    // Once for all processes of the run, because it goes over them: a run may
    // have tens of thousands.
    std::optional<Starts> newest;
    for (auto& [number, process] : run.processes) {
      if (process.books.state() != stored::STATE_DISCONNECTED) continue;
      if (!newest.has_value()) newest = NewestStarts(run);
      EndIfSilent(&run, *newest, &process);
    }
    EndRunIfDue(&run);
  }
  ShelveWhatRests();
}

void Registry::EndIfSilent(RunState* run, const Starts& newest,
                           ProcessEntry* process) {
  stored::Process& books = process->books;
  const absl::Time now = options_.now();
  const absl::Duration since =
      now - absl::FromUnixNanos(books.state_since_unix_ns());
  const bool lost = since >= options_.lost_after;
  // Most processes that are silent are in no older attempt, and of one program.
  const bool may_be_superseded =
      books.attempt() < newest.last_attempt || !run->IsLatestImage(books);
  if (!lost && (since < options_.superseded_after || !may_be_superseded ||
                !IsSuperseded(*run, newest, books))) {
    return;
  }
  SetState(lost ? stored::STATE_SILENT : stored::STATE_SUPERSEDED, now, &books);
  spdlog::warn("process lost run={} process=\"{}\" silent_s={} superseded={}",
               run->run.id(), ProcessName(books), absl::ToInt64Seconds(since),
               !lost);
  WriteProcess(run, *process, WriteSet(), nullptr);
}

void Registry::EndRunIfDue(RunState* run) {
  const auto end = EndTime(*run, options_.now(), options_.end_grace);
  if (!end.has_value() || run->run.ended_unix_ns() != 0) return;
  // The time of the last end and not of this look, so that a wait for further
  // processes does not lengthen the run.
  run->run.set_ended_unix_ns(absl::ToUnixNanos(*end));
  not_ended_.erase(run->run.id());
  resting_.insert(run->run.id());
  spdlog::info("run ended run={}", run->run.id());
  WriteSet writes;
  PutRun(*run, &writes);
  // Told once the end is durable. Both observers run on the commit thread,
  // without the lock.
  store_.Write(std::move(writes), [this, id = run->run.id()] {
    if (observer_) observer_(id);
    if (on_end_) on_end_(id);
  });
}

}  // namespace traincheck::server
