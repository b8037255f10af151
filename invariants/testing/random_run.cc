#include "invariants/testing/random_run.h"

#include <algorithm>
#include <map>

#include "invariants/testing/synthetic_training.h"
#include "proto/record_reader.h"

namespace traincheck {

namespace {

using Random = std::mt19937_64;

bool OneIn(uint64_t n, Random* random) { return (*random)() % n == 0; }

int Between(int least, int most, Random* random) {
  return least + static_cast<int>((*random)() %
                                  static_cast<uint64_t>(most - least + 1));
}

// Where the records of a slice begin, and when they were made.
struct Timeline {
  std::vector<std::pair<uint64_t, size_t>> records;  // time, offset
};

Timeline ReadSlice(std::string_view bytes, uint64_t* clock_us) {
  Timeline timeline;
  RecordReader reader(bytes);
  while (reader.Next()) {
    if (reader.type() == RecordType::kClockSync) {
      *clock_us = reader.Get<ClockSyncRecord>().monotonic_ns / 1000;
    } else {
      *clock_us += reader.header().delta_us;
    }
    timeline.records.push_back({*clock_us, reader.offset()});
  }
  return timeline;
}

// The records of a batch up to the times in `cuts`, piece by piece.
class Splitter {
 public:
  Splitter(const StoredBatch& batch, std::map<uint32_t, uint64_t>* clocks)
      : batch_(batch) {
    size_t at = 0;
    for (const RingSlice& slice : batch.slices) {
      const size_t size = slice.to - slice.from;
      // A copy, because readers want their first byte aligned.
      const std::string bytes = batch.plain.substr(at, size);
      slices_.push_back(ReadSlice(bytes, &(*clocks)[slice.ring]));
      offsets_.push_back(at);
      at += size;
    }
    done_.resize(slices_.size());
  }

  std::vector<uint64_t> Times() const {
    std::vector<uint64_t> times;
    for (const Timeline& slice : slices_) {
      for (const auto& [time, offset] : slice.records) times.push_back(time);
    }
    return times;
  }

  StoredBatch Until(uint64_t time_us) {
    StoredBatch piece;
    for (size_t i = 0; i < slices_.size(); ++i) {
      const RingSlice& whole = batch_.slices[i];
      const auto& records = slices_[i].records;
      const size_t first = done_[i];
      size_t& next = done_[i];
      // By time in all rings at once: a piece never holds a record without
      // those before it.
      while (next < records.size() && records[next].first <= time_us) ++next;
      if (next == first) continue;
      const size_t begin = records[first].second;
      const size_t end =
          next < records.size() ? records[next].second : whole.to - whole.from;
      piece.plain.append(batch_.plain, offsets_[i] + begin, end - begin);
      piece.slices.push_back({whole.ring, whole.from + begin, whole.from + end,
                              static_cast<uint32_t>(next - first)});
    }
    return piece;
  }

 private:
  const StoredBatch& batch_;
  std::vector<Timeline> slices_;
  std::vector<size_t> offsets_;  // in plain
  std::vector<size_t> done_;     // records given away, by slice
};

TrainingOptions DrawOptions(Random* random) {
  TrainingOptions options;
  options.ranks = Between(2, 4, random);
  options.loader = OneIn(2, random);
  options.model = "Model" + std::to_string((*random)() % 50);
  options.optimizer =
      OneIn(2, random) ? "torch.optim.adamw.AdamW" : "torch.optim.sgd.SGD";
  options.steps = Between(2, 7, random);
  options.micro_batches = Between(1, 2, random);
  options.warm_up = OneIn(4, random) ? 1 : 0;
  options.evaluate_every = OneIn(4, random) ? 2 : 0;
  options.unused_parameter = OneIn(4, random);
  options.frozen_backbone = OneIn(4, random);
  options.tied = OneIn(4, random);
  options.clip = OneIn(4, random);
  options.fault = static_cast<TrainingFault>((*random)() % 5);
  options.fault_step = Between(0, options.steps - 1, random);
  options.seed = (*random)();
  if (OneIn(12, random)) {
    // Further than one rank may be ahead of another.
    options.ranks = 2;
    options.steps = Between(70, 160, random);
    options.steps_per_batch = Between(1, 20, random);
  }
  return options;
}

void Number(std::vector<StoredBatch>* batches) {
  for (size_t i = 0; i < batches->size(); ++i) (*batches)[i].number = i;
}

RandomProcess DrawProcess(const TrainingOptions& options, int32_t rank,
                          bool whole, Random* random) {
  RandomProcess process;
  process.attempt = options.attempt;
  process.rank = rank;
  process.batches = Split(TrainRank(options, rank), random);
  // One that is cut short has not recorded its exit.
  if (!whole && process.batches.size() > 1) {
    process.end = OneIn(2, random) ? ProcessEnd::kDied : ProcessEnd::kLost;
    const size_t keep = 1 + (*random)() % (process.batches.size() - 1);
    process.batches.resize(keep);
  }
  if (OneIn(8, random) && process.batches.size() > 3) {
    // Between two others: a batch that is missing at the end leaves no hole.
    const size_t hole = 1 + (*random)() % (process.batches.size() - 2);
    process.hole = true;
    process.batches.erase(process.batches.begin() +
                          static_cast<ptrdiff_t>(hole));
  }
  Number(&process.batches);
  return process;
}

}  // namespace

std::vector<StoredBatch> Split(const std::vector<StoredBatch>& batches,
                               Random* random) {
  std::vector<StoredBatch> pieces;
  std::map<uint32_t, uint64_t> clocks;
  for (const StoredBatch& batch : batches) {
    Splitter splitter(batch, &clocks);
    std::vector<uint64_t> times = splitter.Times();
    std::sort(times.begin(), times.end());
    std::vector<uint64_t> cuts;
    for (int i = Between(0, 3, random); i > 0 && !times.empty(); --i) {
      cuts.push_back(times[(*random)() % times.size()]);
    }
    if (!times.empty()) cuts.push_back(times.back());
    std::sort(cuts.begin(), cuts.end());
    for (uint64_t cut : cuts) {
      StoredBatch piece = splitter.Until(cut);
      if (!piece.slices.empty()) pieces.push_back(std::move(piece));
    }
  }
  Number(&pieces);
  return pieces;
}

RandomRun DrawRun(uint64_t seed) {
  Random random(seed);
  TrainingOptions options = DrawOptions(&random);
  RandomRun run;
  run.world = options.ranks;
  const uint32_t attempts = OneIn(4, &random) ? 2 : 1;
  for (uint32_t attempt = 0; attempt < attempts; ++attempt) {
    options.attempt = attempt;
    const bool over = attempt + 1 < attempts;
    const int32_t absent =
        OneIn(8, &random) ? Between(0, options.ranks - 1, &random) : -1;
    for (int32_t rank = 0; rank < options.ranks; ++rank) {
      if (rank == absent) {
        run.absent.push_back({attempt, rank});
        continue;
      }
      const bool whole = !over && !OneIn(6, &random);
      run.processes.push_back(DrawProcess(options, rank, whole, &random));
    }
  }
  run.about = std::to_string(options.ranks) + " ranks, " +
              std::to_string(options.steps) + " steps, " +
              std::to_string(attempts) + " attempts, fault " +
              std::to_string(static_cast<int>(options.fault)) + " from step " +
              std::to_string(options.fault_step) + ", " +
              std::to_string(run.absent.size()) + " never connect";
  return run;
}

}  // namespace traincheck
