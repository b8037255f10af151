#include "agent/relay/definition_table.h"

#include <utility>

#include "agent/relay/limits.h"
#include "proto/record_format.h"
#include "proto/record_reader.h"

namespace traincheck::agent {

// Called for each chunk of ring 0 that becomes a batch. `chunk` and `bytes` are
// the same records.
void DefinitionTable::Add(const RingChunk& chunk, std::string_view bytes) {
  if (full_ || chunk.to <= end_) return;
  if (chunk.from != end_) BeginAt(chunk.from);
  // A part stays far below what a batch may hold, and what Batches packs anew
  // for each caller stays small.
  if (open_.size() + bytes.size() > kDefinitionChunkBytes) Close();
  if (full_) return;
  open_.append(bytes);
  open_records_ += chunk.records;
  end_ = chunk.to;
}

// Called once the identity is known, and again when the server's positions are:
// a relay that takes over has not seen the first definitions.
bool DefinitionTable::Fill(const RingReader& ring) {
  if (full_ || end_ >= ring.position()) return true;
  // Not in one piece: a chunk is no larger than a batch may be.
  std::string bytes;
  RingChunk all;
  if (!ring.PeekHistory(end_, &bytes, &all)) {
    // The writer has come round over what a relay before this one had read. A
    // new store would lack the definitions below this position.
    BeginAt(ring.position());
    return false;
  }
  RecordReader records(bytes);
  while (records.Next()) {
    const uint64_t from = all.from + records.offset();
    // Padding keeps the positions those of the ring and counts as no record.
    const uint32_t count = records.type() == RecordType::kPadding ? 0 : 1;
    Add({from, from + records.bytes().size(), count}, records.bytes());
  }
  return true;
}

// Behind a gap the table is of no use for what lies before it: a store needs
// definitions without holes.
void DefinitionTable::BeginAt(uint64_t position) {
  closed_.clear();
  closed_bytes_ = 0;
  open_.clear();
  open_records_ = 0;
  begin_ = end_ = open_from_ = position;
}

// A closed part is compressed once, and its batch is shared with whoever sends
// it.
void DefinitionTable::Close() {
  if (open_.empty()) return;
  auto batch = Pack();
  closed_bytes_ += batch->payload().size();
  // Looked at when a part is closed, so the table exceeds its limit by one part
  // at most.
  full_ = closed_bytes_ > kMaxDefinitionTableBytes;
  closed_.push_back(std::move(batch));
  open_.clear();
  open_records_ = 0;
  open_from_ = end_;
}

std::shared_ptr<const v1::Batch> DefinitionTable::Pack() const {
  auto batch = std::make_shared<v1::Batch>();
  v1::Slice* slice = batch->add_slices();
  slice->set_ring(kDefinitionRing);
  slice->set_from(open_from_);
  slice->set_to(end_);
  slice->set_records(open_records_);
  batch->set_plain_bytes(static_cast<uint32_t>(open_.size()));
  batch->set_payload(compressor_->Compress(open_));
  return batch;
}

std::vector<std::shared_ptr<const v1::Batch>> DefinitionTable::Batches() const {
  std::vector<std::shared_ptr<const v1::Batch>> batches = closed_;
  // The open part is packed for each caller: few ask, and more may come into
  // it.
  if (!open_.empty()) batches.push_back(Pack());
  return batches;
}

}  // namespace traincheck::agent
