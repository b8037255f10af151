// Writes first inputs for every fuzz target: what a healthy training records,
// cut into pieces that a fuzzer can turn over quickly.
//
//   seeds FOLDER [SPOOL_FILE...]      FOLDER/record/..., FOLDER/ring/..., ...
//
// Spool files of real trainings give real records; without one there are those
// of the synthetic trainings.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "agent/relay/spool_for_testing.h"
#include "invariants/sets/set_json.h"
#include "invariants/trace/stored_batch.h"
#include "proto/record_reader.h"
#include "server/store/payload.h"
#include "tests/engine/engine_harness.h"
#include "tests/fuzz/access_seeds.h"
#include "tests/fuzz/checker_state.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {
namespace {

constexpr size_t kSliceBytes = 3000;  // of one input; records are not cut
constexpr size_t kBatches = 6;        // of one process
constexpr uint32_t kDefinitions = 0;  // their ring

// The first whole records of `bytes`, at most `limit` bytes.
std::string Front(std::string_view bytes, size_t limit, uint32_t* count) {
  const std::string aligned(bytes);
  RecordReader records(aligned);
  size_t size = 0;
  *count = 0;
  while (records.Next() && size + records.bytes().size() <= limit) {
    size += records.bytes().size();
    *count += records.type() != RecordType::kPadding;
  }
  return aligned.substr(0, size);
}

struct Piece {
  uint8_t ring = 0;
  uint32_t records = 0;
  std::string bytes;
};

// The slices of one batch, cut short.
using Pieces = std::vector<Piece>;

Pieces Cut(const StoredBatch& batch) {
  Pieces pieces;
  std::string_view rest = batch.plain;
  for (const RingSlice& slice : batch.slices) {
    Piece piece;
    piece.ring = static_cast<uint8_t>(slice.ring);
    piece.bytes = Front(rest.substr(0, slice.to - slice.from), kSliceBytes,
                        &piece.records);
    rest.remove_prefix(slice.to - slice.from);
    if (pieces.size() < 4 && !piece.bytes.empty()) pieces.push_back(piece);
  }
  return pieces;
}

template <typename T>
std::string Number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string Byte(size_t value) { return Number(static_cast<uint8_t>(value)); }

// As batch_input.h reads it.
std::string BatchInput(size_t number, const Pieces& pieces) {
  std::string input = Byte(number) + Byte(pieces.size() - 1);
  for (const Piece& piece : pieces) {
    input += Byte(piece.ring) + Byte(number * 4) + Byte(piece.records) +
             Number(static_cast<uint16_t>(piece.bytes.size())) + piece.bytes;
  }
  return input;
}

class Corpus {
 public:
  explicit Corpus(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void Add(const std::string& target, const std::string& bytes) {
    std::filesystem::create_directories(folder_ / target);
    std::ofstream file(folder_ / target / ("seed-" + std::to_string(next_++)),
                       std::ios::binary);
    file << bytes;
  }

  // The batches of one process.
  void AddProcess(const std::vector<Pieces>& batches) {
    std::string session = Byte(6) + Byte(1) + Byte(0) + Byte(1);
    std::string checker;
    std::string spool = Byte(1) + Byte(0) + Byte(0);
    for (size_t i = 0; i < batches.size(); ++i) {
      if (batches[i].empty()) continue;
      for (const Piece& piece : batches[i]) AddPiece(piece);
      Add("batch", Byte(1) + BatchInput(i, batches[i]));
      session += Byte(10) + BatchInput(i, batches[i]) + Byte(0);
      checker += CheckerInput(i % 2, batches[i]);
      spool += SpoolEntry(i, batches[i]);
    }
    // One report, the end, the sync.
    session += Byte(9) + Byte(1) + Byte(1) + Number(uint16_t{8}) + Byte(1) +
               Number(uint16_t{1}) + Byte(0) + Byte(1) + Byte(0);
    Add("session", session);
    Add("checker", checker + Byte(0xe0) + Byte(0) + Byte(0xe1) + Byte(0));
    Add("spool_load", spool);
  }

 private:
  void AddPiece(const Piece& piece) {
    Add("record", piece.bytes);
    // Map, then records as the writer commits them, read in between.
    std::string ring = Byte(15);
    RecordReader records(piece.bytes);
    while (records.Next()) {
      if (records.bytes().size() > 255) continue;
      ring += Byte(3) + Byte(records.bytes().size());
      ring += std::string(records.bytes());
      ring += Byte(5) + Byte(6) + Number(uint16_t{1000}) + Byte(12) +
              Number(uint16_t{0});
      if (ring.size() > 1000) break;
    }
    Add("ring", ring);
  }

  static std::string CheckerInput(size_t process, const Pieces& pieces) {
    std::string input = Byte(process) + Byte(pieces.size() - 1);
    for (const Piece& piece : pieces) {
      input += Byte(piece.ring) + Byte(0) +
               Number(static_cast<uint16_t>(piece.bytes.size())) + piece.bytes;
    }
    return input;
  }

  // A batch whose payload nobody looks at.
  static std::string SpoolEntry(size_t number, const Pieces& pieces) {
    v1::Batch batch;
    batch.set_number(number);
    for (const Piece& piece : pieces) {
      v1::Slice* slice = batch.add_slices();
      slice->set_ring(piece.ring);
      slice->set_to(piece.bytes.size());
      slice->set_records(piece.records);
    }
    batch.set_payload("payload");
    const std::string bytes = batch.SerializeAsString();
    return Byte(1) + Byte(number) +
           Number(static_cast<uint16_t>(bytes.size())) + bytes;
  }

  const std::filesystem::path folder_;
  int next_ = 0;
};

void AddSpool(const std::string& path, Corpus* corpus) {
  const absl::StatusOr<agent::SpoolContents> spool = agent::ReadSpool(path);
  if (!spool.ok()) return;
  std::vector<Pieces> batches;
  for (const v1::Batch& batch : spool->batches) {
    if (batches.size() == kBatches) break;
    absl::StatusOr<std::string> plain =
        server::DecompressUntrusted(batch.payload(), batch.plain_bytes());
    Require(plain.ok());
    StoredBatch stored;
    stored.plain = *std::move(plain);
    for (const v1::Slice& slice : batch.slices()) {
      stored.slices.push_back(
          {slice.ring(), slice.from(), slice.to(), slice.records()});
    }
    batches.push_back(Cut(stored));
    if (batch.payload().size() < kSliceBytes) {
      corpus->Add("batch", Byte(0) + batch.SerializeAsString());
    }
  }
  corpus->AddProcess(batches);
}

void AddSynthetic(Corpus* corpus) {
  for (Reference reference : TwoReferences()) {
    reference.options.steps = 2;
    for (int32_t rank = 0; rank < reference.options.ranks; ++rank) {
      std::vector<Pieces> batches;
      for (const StoredBatch& batch : TrainRank(reference.options, rank)) {
        batches.push_back(Cut(batch));
      }
      corpus->AddProcess(batches);
    }
  }
}

// The batch as if it had been cut while calls were open: of each thread only
// the first bytes.
StoredBatch Begin(const StoredBatch& batch, size_t limit) {
  StoredBatch begin;
  begin.number = batch.number;
  std::string_view rest = batch.plain;
  for (RingSlice slice : batch.slices) {
    const size_t size = slice.to - slice.from;
    const std::string bytes =
        Front(rest.substr(0, size), slice.ring == kDefinitions ? size : limit,
              &slice.records);
    rest.remove_prefix(size);
    slice.to = slice.from + bytes.size();
    begin.plain += bytes;
    begin.slices.push_back(slice);
  }
  return begin;
}

// A check that got whole batches and the beginning of one.
void AddOpenStates(const std::vector<StoredBatch>& batches, Corpus* corpus) {
  for (size_t limit : {100, 300, 500, 900, 1500}) {
    for (size_t whole = 0; whole < batches.size(); ++whole) {
      const std::unique_ptr<Checker> checker = NewSmallChecker();
      for (size_t i = 0; i < whole; ++i) checker->Consume(0, batches[i]);
      checker->Consume(0, Begin(batches[whole], limit));
      corpus->Add("checker_state", StateOf(*checker));
    }
  }
}

// What checks in the middle of a run save, of runs with every fault.
void AddStates(Corpus* corpus) {
  for (TrainingFault fault :
       {TrainingFault::kNone, TrainingFault::kBypassWrapper,
        TrainingFault::kWrongParameters, TrainingFault::kNoClear,
        TrainingFault::kNoSyncOnOneRank}) {
    TrainingOptions options;
    options.steps = 3;
    options.fault = fault;
    const auto first = TrainRank(options, 0);
    const auto second = TrainRank(options, 1);
    AddOpenStates(first, corpus);
    const std::unique_ptr<Checker> checker = NewSmallChecker();
    corpus->Add("checker_state", StateOf(*checker));
    for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
      checker->Consume(0, first[i]);
      corpus->Add("checker_state", StateOf(*checker));
      checker->Consume(1, second[i]);
      corpus->Add("checker_state", StateOf(*checker));
    }
  }
}

void AddSets(Corpus* corpus) {
  InvariantSet set;
  set.name = "set";
  set.runs = {"run-1"};
  for (const Invariant& invariant : Learn(TwoReferences()).invariants) {
    set.invariants = {invariant};
    corpus->Add("set", ToJson(set).dump());
  }
}

}  // namespace
}  // namespace traincheck

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [SPOOL_FILE...]\n", argv[0]);
    return EXIT_FAILURE;
  }
  traincheck::Corpus corpus(argv[1]);
  traincheck::AddSynthetic(&corpus);
  traincheck::AddStates(&corpus);
  traincheck::AddSets(&corpus);
  for (const traincheck::FuzzSeed& seed : traincheck::AccessSeeds()) {
    corpus.Add(seed.target, seed.bytes);
  }
  for (int i = 2; i < argc; ++i) traincheck::AddSpool(argv[i], &corpus);
  return EXIT_SUCCESS;
}
