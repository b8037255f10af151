// The writer's half of a ring: a memfd that one thread fills with records and
// that the relay reads. Never blocks, never allocates after Create: a record
// that does not fit is dropped and counted, and a Drops record says so as soon
// as there is room again.
//
//   auto ring = RingWriter::Create(1, kMainRingBytes);
//   if (ring) ring->Append(record, size);
//
// Killed at any moment, the writer leaves whole records up to head.
// Threads: one object, one thread; MarkClosed and drained() from any thread.
// The memory is not there in a forked child (MADV_DONTFORK): a child must
// forget its parent's writers without touching them.
#ifndef TRAINCHECK_AGENT_RING_RING_WRITER_H_
#define TRAINCHECK_AGENT_RING_RING_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "agent/ring/ring_abi.h"

namespace traincheck {

class RingWriter {
 public:
  // nullptr: the system refuses, errno says why.
  // REQUIRES: capacity_bytes is a power of two and at least a page.
  [[nodiscard]] static std::unique_ptr<RingWriter> Create(
      uint32_t ring, uint64_t capacity_bytes);
  ~RingWriter();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Commits a record, or drops and counts it. False: dropped.
  // REQUIRES: size is the record's size_bytes, divisible by 8.
  bool Append(const void* record, size_t size);

  // As Append, but a record that does not fit counts as never offered.
  [[nodiscard]] bool TryAppend(const void* record, size_t size);

  // No more records will come.
  void MarkClosed() { header_->closed.store(1, std::memory_order_release); }

  // Has the reader given everything back that was committed?
  bool drained() const {
    return header_->tail.load(std::memory_order_acquire) ==
           header_->head.load(std::memory_order_acquire);
  }
  uint64_t dropped_records() const { return dropped_; }
  uint32_t ring() const { return header_->ring; }

  // What the relay is told; the file goes with it. -1 after CloseFile: the
  // mapping alone keeps the ring.
  RingHandover handover() const;
  int fd() const { return fd_; }
  void CloseFile();

 private:
  RingWriter(RingHeader* header, uint64_t capacity, int fd);

  // Bytes for a record, padding before it done; nullptr: no room.
  char* Place(size_t size);
  void Publish(const void* record, size_t size, char* at);
  void ReportDrops();
  char* At(uint64_t position) const {
    return reinterpret_cast<char*>(header_) + kRingHeaderBytes +
           (position & (capacity_ - 1));
  }

  RingHeader* const header_;
  const uint64_t capacity_;
  int fd_;
  // The writer's own copies: the shared ones are stored, never read back.
  uint64_t head_ = 0;
  uint64_t known_tail_ = 0;
  uint64_t offered_ = 0;
  uint64_t committed_ = 0;
  uint64_t dropped_ = 0;
  uint64_t reported_drops_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_RING_RING_WRITER_H_
