// How fast the checker reads, what snapshots cost it, and what a restart saves.
//
//   checker_bench [STEPS]     two ranks, STEPS steps each (default 20000)
//   checker_bench scale       many ranks and rules: copies of the learned ones
//   under
//                             other ids, so that nothing of one serves another
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "checker/checker.h"
#include "inference/inference.h"
#include "invariants/testing/synthetic_training.h"

namespace traincheck {
namespace {

constexpr int kRanks = 2;
constexpr int kStepsPerBatch = 100;

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Recorded {
  std::vector<std::vector<StoredBatch>> ranks;
  uint64_t records = 0;
};

Recorded Record(int steps) {
  TrainingOptions options;
  options.ranks = kRanks;
  options.steps = steps;
  options.steps_per_batch = kStepsPerBatch;
  options.fault = TrainingFault::kBypassWrapper;
  options.fault_step = steps / 2;
  Recorded recorded;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    recorded.ranks.push_back(TrainRank(options, rank));
    for (const StoredBatch& batch : recorded.ranks.back()) {
      for (const RingSlice& slice : batch.slices) {
        recorded.records += slice.records;
      }
    }
  }
  return recorded;
}

InvariantSet Learn() {
  Inference inference({});
  TrainingOptions options;
  options.steps = 50;
  inference.BeginRun({"reference", "bench", ""});
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    for (const StoredBatch& batch : TrainRank(options, rank)) {
      inference.Consume(static_cast<uint32_t>(rank), batch);
    }
  }
  inference.EndRun();
  InvariantSet set;
  set.invariants = inference.Finish(nullptr).invariants;
  return set;
}

struct Saved {
  double seconds = 0;
  size_t count = 0;
  size_t bytes = 0;
  std::string last;
};

struct Part {
  size_t from = 0;
  size_t to = 0;
  size_t every = 0;  // batches between two snapshots; 0: none
};

// Reads these batches of both ranks in turn.
double Read(const Recorded& recorded, const Part& part, Checker* checker,
            Saved* saved) {
  const double begin = Seconds();
  for (size_t i = part.from; i < part.to; ++i) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      checker->Consume(rank, recorded.ranks[rank][i]);
    }
    checker->TakeChanges();
    if (part.every == 0 || i % part.every != part.every - 1) continue;
    const double start = Seconds();
    saved->last = checker->Save();
    saved->seconds += Seconds() - start;
    ++saved->count;
    saved->bytes = saved->last.size();
  }
  return Seconds() - begin;
}

void Run(int steps) {
  const InvariantSet set = Learn();
  const Recorded recorded = Record(steps);
  const size_t batches = recorded.ranks[0].size();
  const auto records = static_cast<double>(recorded.records);
  std::printf("%zu rules, %d ranks, %d steps, %.0f records\n",
              set.invariants.size(), kRanks, steps, records);
  Saved saved;
  Checker plain("run", "bench", set);
  const double seconds = Read(recorded, {0, batches, 0}, &plain, &saved);
  std::printf("without snapshots: %.2f s, %.2f million records/s\n", seconds,
              records / seconds / 1e6);
  Checker saving("run", "bench", set);
  const double with = Read(recorded, {0, batches, 1}, &saving, &saved);
  std::printf(
      "a snapshot every %d steps: %.2f s, %.2f million records/s; each takes "
      "%.0f us and has %zu bytes\n",
      kStepsPerBatch, with, records / with / 1e6,
      saved.seconds / static_cast<double>(saved.count) * 1e6, saved.bytes);

  const size_t most = batches * 99 / 100;
  Checker stopped("run", "bench", set);
  Read(recorded, {0, most, most}, &stopped, &saved);
  const double begin = Seconds();
  Checker resumed("run", "bench", set);
  const absl::Status restored = resumed.RestoreUntrusted(saved.last);
  if (!restored.ok()) std::abort();
  const double restore = Seconds() - begin;
  const double rest = Read(recorded, {most, batches, 0}, &resumed, &saved);
  std::printf(
      "restart with 1%% left to read: %.4f s to restore, %.4f s in all; from "
      "the first batch %.2f s\n",
      restore, restore + rest, seconds);
}

// `count` rules.
InvariantSet Multiplied(const InvariantSet& learned, size_t count) {
  InvariantSet set = learned;
  for (size_t i = 0; set.invariants.size() < count; ++i) {
    Invariant copy = learned.invariants[i % learned.invariants.size()];
    copy.id += "-" + std::to_string(i);
    set.invariants.push_back(copy);
  }
  set.invariants.resize(count);
  return set;
}

void Scale(const InvariantSet& learned, int ranks, size_t rules) {
  constexpr int kSteps = 20;
  TrainingOptions options;
  options.ranks = ranks;
  options.steps = kSteps;
  std::vector<std::vector<StoredBatch>> recorded;
  double records = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    recorded.push_back(TrainRank(options, rank));
    for (const StoredBatch& batch : recorded.back()) {
      for (const RingSlice& slice : batch.slices) records += slice.records;
    }
  }
  Checker checker("run", "bench", Multiplied(learned, rules));
  const double begin = Seconds();
  for (size_t i = 0; i < recorded[0].size(); ++i) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      checker.Consume(static_cast<uint32_t>(rank),
                      recorded[static_cast<size_t>(rank)][i]);
    }
    checker.TakeChanges();
  }
  const double seconds = Seconds() - begin;
  std::printf("| %d | %zu | %.2f | %.1f |\n", ranks, rules,
              seconds / records * 1e6, seconds / kSteps * 1e3);
  std::fflush(stdout);
}

void RunScale(const std::vector<std::pair<int, size_t>>& cases) {
  const InvariantSet learned = Learn();
  std::printf(
      "| ranks | rules | us a record | ms a step, all ranks |\n"
      "|---|---|---|---|\n");
  for (const auto& [ranks, rules] : cases) Scale(learned, ranks, rules);
}

}  // namespace
}  // namespace traincheck

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "scale") {
    std::vector<std::pair<int, size_t>> cases;
    for (int i = 2; i + 1 < argc; i += 2) {
      cases.emplace_back(std::atoi(argv[i]), std::atoi(argv[i + 1]));
    }
    if (cases.empty()) {
      cases = {{2, 100},    {64, 100}, {256, 100},
               {1000, 100}, {2, 1000}, {64, 1000}};
    }
    traincheck::RunScale(cases);
    return 0;
  }
  traincheck::Run(argc > 1 ? std::atoi(argv[1]) : 20000);
  return 0;
}
