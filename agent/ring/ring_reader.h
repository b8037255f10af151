// The reader's half of a ring: maps a memfd that was handed over and takes
// whole records from it. The memory belongs to another process, so nothing in
// it is trusted: bytes are copied before they are looked at, every position
// and size is checked, and the first thing that is wrong quarantines the ring.
// What was taken before stays good.
//
//   std::string error;
//   auto ring = RingReader::Map(fd, handover, &error);
//   if (ring->Refresh()) {
//     RingChunk chunk = ring->Take(limit, &bytes, visit);
//     ...  // once [chunk.from, chunk.to) is safe elsewhere:
//     ring->Release(chunk.to);
//   }
//
// Positions: bytes since the ring's creation; released <= read <= head.
// Threads: one object, one thread. The writer is another process.
#ifndef TRAINCHECK_AGENT_RING_RING_READER_H_
#define TRAINCHECK_AGENT_RING_RING_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/ring/ring_abi.h"
#include "proto/record_reader.h"

namespace traincheck::agent {

// Rings outside these bounds are refused.
inline constexpr uint64_t kMinRingBytes = 4096;
inline constexpr uint64_t kMaxRingBytes = 64u << 20;

// What one Take took: positions [from, to) and the records in it, padding not
// counted.
struct RingChunk {
  uint64_t from = 0;
  uint64_t to = 0;
  uint32_t records = 0;
};

// The writer's counters. They run apart by a record while it writes.
struct RingCounters {
  uint64_t head = 0;
  uint64_t offered_records = 0;
  uint64_t committed_records = 0;
  uint64_t dropped_records = 0;
};

class RingReader {
 public:
  using RecordVisitor = std::function<void(const RecordReader&)>;

  // Maps the ring; nullptr and an error if magic, version, sizes or positions
  // are not what `handover` says and the ABI allows, or if the file may shrink
  // (it cannot be sealed). Reading starts at the ring's tail. `fd` stays the
  // caller's and may be closed afterwards.
  static std::unique_ptr<RingReader> Map(int fd, const RingHandover& handover,
                                         std::string* error);
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  uint32_t ring() const { return ring_; }
  uint32_t tid() const { return tid_; }
  uint64_t capacity_bytes() const { return capacity_; }

  // Where the next Take begins.
  uint64_t position() const { return read_; }

  // Takes notice of what the writer has committed by now. False if the ring
  // is quarantined.
  [[nodiscard]] bool Refresh();

  // All as of the last Refresh.
  uint64_t unread_bytes() const { return head_ - read_; }
  uint64_t unreleased_bytes() const { return head_ - released_; }

  // Appends whole records from the read position on, at most `limit` bytes,
  // and shows each one (padding too) to `visit`. Takes nothing if the next
  // record is longer than `limit`. A malformed record quarantines the ring.
  // REQUIRES: out->size() is divisible by 8.
  RingChunk Take(size_t limit, std::string* out, const RecordVisitor& visit);

  // Copies up to `limit` bytes from the read position on, without moving it.
  std::string Peek(size_t limit) const;

  // Copies the bytes of [from, position()), also of those that were released
  // long ago: they lie in the memory until the writer comes round. False: some
  // of them may be overwritten, or a record in them is malformed; then `out`
  // and `chunk` say nothing.
  [[nodiscard]] bool PeekHistory(uint64_t from, std::string* out,
                                 RingChunk* chunk) const;

  // Leaves out and releases what lies before `position`, because it is safe
  // elsewhere already. False if the ring does not reach so far.
  // REQUIRES: a record begins or ends there.
  bool SkipTo(uint64_t position);

  // The bytes before `position` may be overwritten from now on.
  // REQUIRES: position <= the read position.
  void Release(uint64_t position);

  // Drops everything that is committed, unread: the records are lost. Works
  // on a quarantined ring too, as far as its head makes sense.
  void Discard();

  RingCounters counters() const;
  // The writer is done: what was committed before the last Refresh was all if
  // closed() was already true then.
  bool closed() const {
    return header_->closed.load(std::memory_order_acquire);
  }

  bool quarantined() const { return !error_.empty(); }
  // Names ring, place and fault; empty while all is well.
  const std::string& error() const { return error_; }

 private:
  explicit RingReader(RingHeader* header) : header_(header) {}

  bool CheckHeader(const RingHandover& handover, std::string* error);
  std::string Copy(uint64_t from, uint64_t to) const;
  bool Quarantine(const std::string& what);
  // Walks the records in `bytes`, which start at the read position. Returns
  // the bytes of whole records. `cut`: the last one may go on behind them.
  size_t Walk(std::string_view bytes, bool cut, RingChunk* chunk,
              const RecordVisitor& visit);
  const char* data() const {
    return reinterpret_cast<const char*>(header_) + kRingHeaderBytes;
  }

  RingHeader* const header_;
  // Copies: the shared header is read once for what never changes.
  uint32_t ring_ = 0;
  uint32_t tid_ = 0;
  uint64_t capacity_ = 0;
  uint64_t head_ = 0;
  uint64_t read_ = 0;
  uint64_t released_ = 0;
  std::string error_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RING_RING_READER_H_
