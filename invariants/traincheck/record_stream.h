// Records of one imported process, in rings as an agent would have written
// them, handed on in batches.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_RECORD_STREAM_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_RECORD_STREAM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "invariants/trace/stored_batch.h"
#include "proto/record_format.h"
#include "proto/record_writer.h"

namespace traincheck {

// Room for one record.
struct RecordBuffer {
  static constexpr size_t kBytes = 8192;
  alignas(8) char bytes[kBytes];
};

struct RingTotals {
  uint64_t position = 0;  // bytes written so far
  uint64_t records = 0;
};

class RecordStream {
 public:
  // Takes the next batch over; an error ends the import.
  using Deliver = std::function<absl::Status(const StoredBatch&)>;

  // `ahead_ns`: from the trace's clock to nanoseconds after 1970.
  RecordStream(uint64_t first_ns, int64_t ahead_ns, Deliver deliver)
      : now_ns_(first_ns), ahead_ns_(ahead_ns), deliver_(std::move(deliver)) {}
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  // When what is written next happened; an earlier time than before counts as
  // that one.
  void SetTime(uint64_t time_ns);

  // Number of the call whose CallBegin is written next on this ring.
  uint64_t NextCall(uint32_t ring) { return rings_[ring].calls + 1; }

  template <typename Fixed>
  void Write(uint32_t ring, RecordType type, uint8_t flags,
             const Fixed& fixed) {
    RecordBuffer buffer;
    FieldWriter out(buffer.bytes, RecordBuffer::kBytes, fixed);
    Finish(ring, &out, &buffer, type, flags);
  }
  // The record that `out` has written into `buffer`. One that does not fit is
  // left out: the writers bound what they write.
  void Finish(uint32_t ring, FieldWriter* out, RecordBuffer* buffer,
              RecordType type, uint8_t flags);
  void WriteState(uint32_t ring, StateRecord state, const uint64_t* digests,
                  size_t count);
  // Where the ring's clock stands; the first record of each but the first.
  void WriteClockSync(uint32_t ring);

  // Hands a batch on if there is enough for one.
  void CutIfFull();
  // Hands on what is left.
  void Cut();

  // The first error of Deliver; nothing is handed on after it.
  const absl::Status& status() const { return status_; }
  const std::map<uint32_t, RingTotals>& totals() const { return totals_; }
  uint64_t records() const { return records_; }

 private:
  struct Ring {
    std::string bytes;  // not handed on yet
    uint32_t records = 0;
    uint64_t last_us = 0;
    uint64_t calls = 0;
    bool begun = false;
  };

  // Makes the ring and its time fit for one more record; returns the time
  // since the last one, in microseconds.
  uint32_t Prepare(uint32_t ring);
  void Append(uint32_t ring, const char* bytes, size_t size);

  uint64_t now_ns_;
  const int64_t ahead_ns_;
  const Deliver deliver_;
  std::map<uint32_t, Ring> rings_;
  std::map<uint32_t, RingTotals> totals_;
  size_t pending_bytes_ = 0;
  uint64_t batches_ = 0;
  uint64_t records_ = 0;
  absl::Status status_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_RECORD_STREAM_H_
