#include "invariants/traincheck/record_stream.h"

#include <algorithm>

namespace traincheck {

namespace {

// A line makes a few records of at most some KiB, so a batch stays well below
// what a daemon takes.
constexpr size_t kEnoughForABatchBytes = 256u << 10;
// A longer pause needs a ClockSync: deltas have 32 bits.
constexpr uint64_t kMaxDeltaUs = 1'000'000'000;

}  // namespace

void RecordStream::SetTime(uint64_t time_ns) {
  // States may be older than what is written already. Deltas have no sign, so
  // time never goes back here.
  now_ns_ = std::max(now_ns_, time_ns);
}

uint32_t RecordStream::Prepare(uint32_t number) {
  Ring& ring = rings_[number];
  const bool too_long =
      ring.begun && now_ns_ / 1000 - ring.last_us > kMaxDeltaUs;
  if (!ring.begun) {
    // The first record has a delta of 0 and counts from the ClockSync before
    // it.
    ring.begun = true;
    ring.last_us = now_ns_ / 1000;
    // The first record of the definitions says whose they are.
    if (number != kDefinitionRing) WriteClockSync(number);
  } else if (too_long) {
    WriteClockSync(number);
  }
  const auto delta = static_cast<uint32_t>(now_ns_ / 1000 - ring.last_us);
  ring.last_us = now_ns_ / 1000;
  return delta;
}

void RecordStream::WriteClockSync(uint32_t number) {
  Ring& ring = rings_[number];
  ring.last_us = now_ns_ / 1000;
  ClockSyncRecord sync = {};
  sync.monotonic_ns = now_ns_;
  sync.realtime_ns = static_cast<uint64_t>(
      // A sum below 0 would wrap to a date in the far future.
      std::max<int64_t>(0, static_cast<int64_t>(now_ns_) + ahead_ns_));
  sync.next_call = ring.calls + 1;
  sync.header.size_bytes = sizeof sync;
  sync.header.type = static_cast<uint8_t>(RecordType::kClockSync);
  Append(number, reinterpret_cast<const char*>(&sync), sizeof sync);
}

void RecordStream::Append(uint32_t number, const char* bytes, size_t size) {
  Ring& ring = rings_[number];
  ring.bytes.append(bytes, size);
  ++ring.records;
  ++records_;
  ++totals_[number].records;
  pending_bytes_ += size;
}

void RecordStream::Finish(uint32_t ring, FieldWriter* out, RecordBuffer* buffer,
                          RecordType type, uint8_t flags) {
  const uint32_t delta = Prepare(ring);
  const size_t size = out->Finish(type, flags, delta);
  if (size == 0) return;
  // Readers count the begins that they see: one that is left out has no number.
  if (type == RecordType::kCallBegin) ++rings_[ring].calls;
  Append(ring, buffer->bytes, size);
}

void RecordStream::WriteState(uint32_t ring, StateRecord state,
                              const uint64_t* digests, size_t count) {
  struct {
    StateRecord fixed;
    uint64_t digests[2];
  } record = {};
  const uint32_t delta = Prepare(ring);
  record.fixed = state;
  std::copy(digests, digests + count, record.digests);
  // The digests that are there follow the fixed part without a hole, data
  // before gradient.
  const size_t size = sizeof(StateRecord) + count * sizeof(uint64_t);
  record.fixed.header = {static_cast<uint16_t>(size),
                         static_cast<uint8_t>(RecordType::kState), 0, delta};
  Append(ring, reinterpret_cast<const char*>(&record), size);
}

void RecordStream::CutIfFull() {
  if (pending_bytes_ >= kEnoughForABatchBytes) Cut();
}

// A batch takes what all rings have at this moment, so that a call and the
// definitions that it names are in one batch or in this order.
void RecordStream::Cut() {
  // A batch behind one that was refused would leave a hole in its rings.
  if (pending_bytes_ == 0 || !status_.ok()) return;
  StoredBatch batch;
  batch.number = batches_++;
  batch.plain.reserve(pending_bytes_);
  // By number: the definitions, ring 0, stand before what names them.
  for (auto& [number, ring] : rings_) {
    if (ring.bytes.empty()) continue;
    uint64_t& position = totals_[number].position;
    batch.slices.push_back(
        {number, position, position + ring.bytes.size(), ring.records});
    position += ring.bytes.size();
    batch.plain += ring.bytes;
    ring.bytes.clear();
    ring.records = 0;
  }
  pending_bytes_ = 0;
  status_ = deliver_(batch);
}

}  // namespace traincheck
