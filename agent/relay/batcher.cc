#include "agent/relay/batcher.h"

#include <string_view>

#include "agent/relay/limits.h"
#include "proto/record_format.h"

namespace traincheck::agent {

// Called in a loop until nothing is left, with the same `now` for one turn of
// the relay.
std::optional<v1::Batch> Batcher::Next(TimePoint now,
                                       std::chrono::milliseconds gather) {
  const uint64_t unread = rings_->unread_bytes();
  if (unread == 0) {
    empty_at_ = now;
    return std::nullopt;
  }
  // Each batch costs a compression, a message and an acknowledgement. A few
  // records therefore wait for more.
  if (unread < kEnoughForABatchBytes && now - empty_at_ < gather) {
    return std::nullopt;
  }
  // The batch takes what is there: first the definitions, then the rings in the
  // order of their numbers, up to the limit of a batch.
  v1::Batch batch;
  plain_.clear();
  // Definitions first: whoever reads the batch meets each one before its use.
  RingReader* definitions = rings_->definitions();
  // Records may use definitions that did not fit: they wait for the next one.
  if (definitions == nullptr || TakeRing(definitions, &batch)) {
    for (RingReader* ring : rings_->events()) TakeRing(ring, &batch);
  }
  // All that was unread was in rings that have just been quarantined.
  if (batch.slices().empty()) return std::nullopt;
  batch.set_plain_bytes(static_cast<uint32_t>(plain_.size()));
  batch.set_payload(compressor_->Compress(plain_));
  return batch;
}

// A quiet process sends no records, and the server cannot tell a slow one from
// one that waits for ever. Such a batch has no slices.
v1::Batch Batcher::Quiet(TimePoint now) {
  v1::Batch batch;
  // A frame of nothing: a payload without a frame would be quarantined.
  batch.set_payload(compressor_->Compress(""));
  // steady_clock is CLOCK_MONOTONIC, that of records.
  batch.set_quiet_monotonic_ns(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          now.time_since_epoch())
          .count()));
  return batch;
}

bool Batcher::TakeRing(RingReader* ring, v1::Batch* batch) {
  const size_t begin = plain_.size();
  // The relay decodes no record later, so the mark of a clean exit is seen here
  // or never: the goodbye needs it to tell an orderly end from a death.
  const RingChunk chunk = ring->Take(
      kMaxBatchPlainBytes - plain_.size(), &plain_,
      [this](const RecordReader& record) {
        saw_clean_exit_ |=
            record.type() == RecordType::kMark &&
            record.header().flags == static_cast<uint8_t>(MarkKind::kCleanExit);
      });
  // Counted here, so that the final report can name the records that were read
  // even if the writer was killed before it counted its last one.
  rings_->CountRead(ring->ring(), chunk.records);
  if (ring->ring() == kDefinitionRing) {
    table_->Add(chunk, std::string_view(plain_).substr(begin));
  }
  if (chunk.to > chunk.from) {
    v1::Slice* slice = batch->add_slices();
    slice->set_ring(ring->ring());
    slice->set_from(chunk.from);
    slice->set_to(chunk.to);
    slice->set_records(chunk.records);
  }
  // A quarantined ring has nothing left to wait for: other rings go on.
  return ring->quarantined() || ring->unread_bytes() == 0;
}

}  // namespace traincheck::agent
