// What a process has defined so far, from the first byte of its definition
// ring on: kept (bounded), because a server whose store does not have it can
// make nothing of the records that use it.
//
// Owned by the ProcessStream; filled by its Batcher, read by its Outbox.
// Threads: externally synchronised (the relay's loop).
#ifndef TRAINCHECK_AGENT_RELAY_DEFINITION_TABLE_H_
#define TRAINCHECK_AGENT_RELAY_DEFINITION_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/relay/compressor.h"
#include "agent/ring/ring_reader.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

class DefinitionTable {
 public:
  explicit DefinitionTable(Compressor* compressor) : compressor_(compressor) {}
  DefinitionTable(const DefinitionTable&) = delete;
  DefinitionTable& operator=(const DefinitionTable&) = delete;

  // Takes whole records of the definition ring. What lies below end() is
  // known; behind a gap the table begins anew.
  void Add(const RingChunk& chunk, std::string_view bytes);
  // Fills the table with what the ring's memory still has of [end(), read
  // position). False: some of it is gone, and begin() has moved.
  bool Fill(const RingReader& ring);

  // It holds the positions [begin, end).
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  // No more is taken: what was defined later is in the table of no new store.
  bool full() const { return full_; }

  // The table as batches without numbers, in order; one slice each.
  std::vector<std::shared_ptr<const v1::Batch>> Batches() const;

 private:
  // Forgets everything; the next byte is that of `position`.
  void BeginAt(uint64_t position);
  void Close();
  std::shared_ptr<const v1::Batch> Pack() const;

  Compressor* const compressor_;
  std::vector<std::shared_ptr<const v1::Batch>> closed_;
  uint64_t closed_bytes_ = 0;  // compressed
  // The part that still grows: [open_from_, end_).
  std::string open_;
  uint64_t open_from_ = 0;
  uint32_t open_records_ = 0;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  bool full_ = false;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_DEFINITION_TABLE_H_
