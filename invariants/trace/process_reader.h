// Turns the stored batches of one process into its events: waits for deferred
// digests, keeps the definition table, follows the open calls of each ring,
// merges the rings of a batch by time and says where records are missing.
// Trusts nothing in the batches.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRACE_PROCESS_READER_H_
#define TRAINCHECK_INVARIANTS_TRACE_PROCESS_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invariants/trace/deferred_digests.h"
#include "invariants/trace/definitions.h"
#include "invariants/trace/events.h"
#include "invariants/trace/stored_batch.h"
#include "proto/record_reader.h"

namespace traincheck {

class ProcessReader {
 public:
  // `visitor` must outlive the reader.
  explicit ProcessReader(EventVisitor* visitor) : visitor_(visitor) {}
  ProcessReader(const ProcessReader&) = delete;
  ProcessReader& operator=(const ProcessReader&) = delete;

  // The next batch in the order of the store. Its events come now or, if they
  // wait for digests, with a later one.
  void Consume(const StoredBatch& batch) {
    deferred_.Consume(batch, [this](const StoredBatch& next) { Read(next); });
  }
  // No more batches will come: the events that wait come now.
  void End() {
    deferred_.End([this](const StoredBatch& next) { Read(next); });
  }

  const ProcessDefinitions& definitions() const { return definitions_; }
  // When the last event was, by the clock of the process's machine.
  uint64_t now_us() const { return now_us_; }

  // Leaves the archive with this process's definitions.
  void Fields(Archive& archive);

 private:
  // What is known of one ring between batches.
  struct Ring {
    uint64_t position = 0;  // up to here its records were read
    uint64_t time_us = 0;
    uint64_t next_call = 0;  // 0: not known
    uint64_t dropped = 0;
    bool resync = false;  // records were missing: open calls are in doubt
    std::vector<Call> open;

    void Fields(Archive& archive);
  };

  // One slice while its batch is merged.
  struct Cursor {
    Cursor(uint32_t ring_id, Ring* state, std::string_view bytes)
        : id(ring_id), ring(state), records(bytes) {}
    uint32_t id;
    Ring* ring;
    RecordReader records;
    uint64_t time_us = 0;
    bool more = false;
    std::optional<size_t> told;  // offset of a mark that was shown early
  };

  void Read(const StoredBatch& batch);
  std::vector<Cursor> Slices(const StoredBatch& batch);
  void Advance(Cursor* cursor);
  // Takes over a definition; a gap of ring 0 where there are too many.
  bool Define(const RecordReader& record);
  void DefineNew(std::string_view definitions);
  void Dispatch(Cursor* cursor);
  void Gap(Ring* ring, const std::string& reason);
  void Miss(const std::string& reason);
  void TellOfStep(Cursor* cursor);
  void SwitchedOff();

  void BeginCall(Cursor* cursor);
  void EndCall(Cursor* cursor);
  void State(Cursor* cursor);
  void Statistics(const RecordReader& record);
  void Rows(const RecordReader& record);
  void Collective(Cursor* cursor);
  void CheckpointEntry(Cursor* cursor);
  void Scalar(const RecordReader& record);
  void Drops(Ring* ring, uint64_t dropped);
  // Ends the calls above the first `keep`, whose ends were not recorded.
  void Abandon(Ring* ring, size_t keep);
  uint64_t FullCall(Ring* ring, uint32_t low);

  EventVisitor* const visitor_;
  DeferredDigests deferred_;
  ProcessDefinitions definitions_;
  std::map<uint32_t, Ring> rings_;
  bool missed_ = false;  // some record
  uint64_t now_us_ = 0;
  // Definitions that DefineNew took over, by offset in the slice.
  std::vector<size_t> defined_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_PROCESS_READER_H_
