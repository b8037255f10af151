#include "server/comparing/stored_comparison.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checker/compare/process_comparison.h"
#include "checker/compare/run_comparison.h"
#include "server/comparing/attempt_processes.h"
#include "server/comparing/comparison_message.h"
#include "server/runs/ended_run.h"
#include "server/store/batch_reader.h"

namespace traincheck::server {
namespace {

// How long the last records of a run that has ended are waited for, and how
// often they are looked for.
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kLookAgain = absl::Milliseconds(10);

// One run while it is read.
struct Source {
  RunView run;
  AttemptProcesses processes;
};

// The client's progress bar counts these. Processes that only one run has are
// not read, so the bar may end early.
uint64_t BatchesOf(const AttemptProcesses& processes) {
  uint64_t batches = 0;
  for (const auto& [key, process] : processes.ranks) {
    batches += process.next_batch;
  }
  for (const auto& [key, process] : processes.workers) {
    batches += process.next_batch;
  }
  return batches;
}

// The ends of the view are durable ones: until they are there the last batches
// may not be in the store.
bool HaveEnded(const AttemptProcesses& processes) {
  const auto has_ended = [](const auto& entry) {
    return entry.second.end.has_value();
  };
  return std::all_of(processes.ranks.begin(), processes.ranks.end(),
                     has_ended) &&
         std::all_of(processes.workers.begin(), processes.workers.end(),
                     has_ended);
}

// Reads both runs and puts together what they differ in.
class Comparing {
 public:
  Comparing(const Store& store, const Source& a, const Source& b,
            const StoredComparisons::Progress& progress)
      : store_(store),
        a_(a),
        b_(b),
        progress_(progress),
        all_(BatchesOf(a.processes) + BatchesOf(b.processes)),
        comparison_(a.processes.world, b.processes.world) {}

  absl::StatusOr<ComparisonResult> Run() {
    // Rank by rank and not all at once: memory holds about a step of one pair
    // of processes, however many there are.
    absl::Status ranks = ForEach(
        a_.processes.ranks, b_.processes.ranks, "ranks",
        [](const RankKey& key) { return absl::StrCat("rank ", key.rank); },
        [&](const RankKey& key, const auto& a, const auto& b) {
          return ComparePair(a, b, {}, [&](ProcessResult result) {
            comparison_.AddRank(key.rank, std::move(result));
          });
        });
    if (!ranks.ok()) return ranks;
    absl::Status workers = ForEach(
        a_.processes.workers, b_.processes.workers, "workers of loaders",
        [](const WorkerKey& key) {
          return absl::StrCat("worker ", key.worker, " of rank ",
                              key.owner.rank);
        },
        [&](const WorkerKey& key, const auto& a, const auto& b) {
          return ComparePair(a, b, {.is_worker = true},
                             [&](ProcessResult result) {
                               comparison_.AddWorker(key.owner.rank, key.worker,
                                                     std::move(result));
                             });
        });
    if (!workers.ok()) return workers;
    return comparison_.Finish();
  }

 private:
  struct Cursor {
    RunSide side;
    const Source* source;
    const RunView::Process* process;
    uint64_t next_batch = 0;
    bool ended = false;
  };

  template <typename Processes, typename Name, typename Pair>
  // Pairs what both runs have: ranks, and then workers.
  absl::Status ForEach(const Processes& a, const Processes& b, const char* kind,
                       Name name, Pair pair) {
    for (const auto& [key, process] : a) {
      // What only one of the runs has is named in the result and is not an
      // error: the rest is still compared.
      const auto other = b.find(key);
      if (other == b.end()) {
        comparison_.AddLone(RunSide::kA, kind, name(key));
        continue;
      }
      absl::Status status = pair(key, process, other->second);
      if (!status.ok()) return status;
    }
    for (const auto& [key, process] : b) {
      if (a.count(key) == 0) {
        comparison_.AddLone(RunSide::kB, kind, name(key));
      }
    }
    return absl::OkStatus();
  }

  template <typename Take>
  absl::Status ComparePair(const RunView::Process& a, const RunView::Process& b,
                           const ProcessComparison::Options& options,
                           Take take) {
    ProcessComparison comparison(options);
    // Each side is read to its next step and then waits for the other, so that
    // no more than about a step of each is held.
    Cursor cursors[] = {{RunSide::kA, &a_, &a}, {RunSide::kB, &b_, &b}};
    while (!cursors[0].ended || !cursors[1].ended) {
      for (Cursor& cursor : cursors) {
        if (!comparison.Wants(cursor.side)) continue;
        absl::Status read = Read(&cursor, &comparison);
        if (!read.ok()) return read;
      }
      if (!progress_(all_ == 0 ? 1
                               : static_cast<double>(read_) /
                                     static_cast<double>(all_))) {
        return absl::CancelledError("the client has left");
      }
    }
    take(comparison.Finish());
    return absl::OkStatus();
  }

  // As far as the next step.
  absl::Status Read(Cursor* cursor, ProcessComparison* comparison) {
    const uint64_t from = cursor->next_batch;
    const uint64_t to = cursor->process->next_batch;
    bool whole = true;
    absl::Status read = ReadBatches(
        store_, {cursor->source->run.number, cursor->process->number, from}, to,
        [&](const StoredBatch& batch) {
          comparison->Consume(cursor->side, batch);
          cursor->next_batch = batch.number + 1;
          // Asked behind each batch. One may reach far beyond the next step:
          // the comparison then holds the rest of it.
          whole = comparison->Wants(cursor->side);
          return whole;
        });
    if (!read.ok()) {
      return absl::Status(
          read.code(),
          absl::StrCat("run ", cursor->source->run.id, ": ", read.message()));
    }
    // The numbers behind the last batch found are quarantined ones.
    if (whole) cursor->next_batch = to;
    read_ += cursor->next_batch - from;
    if (cursor->next_batch < to) return absl::OkStatus();
    cursor->ended = true;
    comparison->End(cursor->side,
                    cursor->process->end.value_or(ProcessEnd::kLost));
    return absl::OkStatus();
  }

  const Store& store_;
  const Source& a_;
  const Source& b_;
  const StoredComparisons::Progress& progress_;
  const uint64_t all_;  // batches
  uint64_t read_ = 0;
  RunComparison comparison_;
};

// The end of a run is known a moment before its last batch is durable.
absl::StatusOr<Source> FindSource(const Registry& registry,
                                  const std::string& id,
                                  std::optional<uint32_t> attempt,
                                  const StoredComparisons::Progress& progress) {
  const absl::Time patience = absl::Now() + kPatience;
  while (true) {
    absl::StatusOr<RunView> run =
        FindEndedRun(registry, id, "compare it when it has");
    if (!run.ok()) return run.status();
    // A second look, for pids and owners of workers. A process that comes
    // between the two is in one of them alone and is left out.
    const absl::StatusOr<v1::Run> identities = registry.Run(id);
    if (!identities.ok()) return identities.status();
    absl::StatusOr<AttemptProcesses> processes =
        ProcessesOf(*run, *identities, attempt);
    if (!processes.ok()) return processes.status();
    if (HaveEnded(*processes)) {
      return Source{*std::move(run), *std::move(processes)};
    }
    if (!progress(0)) return absl::CancelledError("the client has left");
    if (absl::Now() > patience) {
      return absl::UnavailableError(
          absl::StrCat("the last records of run ", id, " are not stored yet"));
    }
    absl::SleepFor(kLookAgain);
  }
}

// Attempt 0 is an attempt, so protobuf's presence says whether one was named.
std::optional<uint32_t> Given(bool has, uint32_t attempt) {
  return has ? std::optional(attempt) : std::nullopt;
}

}  // namespace

absl::StatusOr<v1::CompareRunsResult> StoredComparisons::Compare(
    const v1::CompareRunsRequest& request, const Progress& progress) const {
  // Held first and looked for then, see RunPins.
  const RunPins::Pin pin_a = use_.pins->Hold(request.run_a());
  const RunPins::Pin pin_b = use_.pins->Hold(request.run_b());
  const absl::StatusOr<Source> a =
      FindSource(*use_.registry, request.run_a(),
                 Given(request.has_attempt_a(), request.attempt_a()), progress);
  if (!a.ok()) return a.status();
  const absl::StatusOr<Source> b =
      FindSource(*use_.registry, request.run_b(),
                 Given(request.has_attempt_b(), request.attempt_b()), progress);
  if (!b.ok()) return b.status();
  const absl::StatusOr<ComparisonResult> compared =
      Comparing(*use_.store, *a, *b, progress).Run();
  if (!compared.ok()) return compared.status();
  v1::CompareRunsResult result = ToApi(*compared);
  result.set_run_a(a->run.id);
  result.set_run_b(b->run.id);
  result.set_attempt_a(a->processes.attempt);
  result.set_attempt_b(b->processes.attempt);
  return result;
}

}  // namespace traincheck::server
