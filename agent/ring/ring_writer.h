// The writer's half of a ring: a memfd that one thread fills with records and
// that the relay reads. Never blocks, never allocates after Create: a record
// that does not fit is dropped and counted, and a Drops record says so as soon
// as there is room again.
//
//   auto ring = RingWriter::Create(1, kMainRingBytes);
//   if (ring) ring->Append(record, size);
//
// Killed at any moment, the writer leaves whole records up to head.
// Threads: one object, one thread at a time; drained() and backlog() from any
// thread. The memory is not there in a forked child (MADV_DONTFORK): a child
// may call CloseFile and nothing else on its parent's writers.
#ifndef TRAINCHECK_AGENT_RING_RING_WRITER_H_
#define TRAINCHECK_AGENT_RING_RING_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "agent/ring/ring_abi.h"

namespace traincheck::agent {

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

  // While it refuses, every record that is appended is dropped and counted.
  void Refuse(bool refuse) { limit_ = refuse ? 0 : capacity_; }
  // Commits a Drops record if records were dropped since the last one and
  // there is room. Append does it by itself, but not while it refuses.
  void ReportDrops();

  // No thread writes here any more, until another one takes the ring over.
  void MarkClosed() { header_->closed.store(1, std::memory_order_release); }
  void Reopen() { header_->closed.store(0, std::memory_order_release); }

  // Bytes that the reader has not given back.
  uint64_t backlog() const {
    return header_->head.load(std::memory_order_acquire) -
           header_->tail.load(std::memory_order_acquire);
  }
  bool drained() const { return backlog() == 0; }
  uint64_t capacity_bytes() const { return capacity_; }
  uint64_t dropped_records() const { return dropped_; }
  uint32_t ring() const { return header_->ring; }

  // What the relay is told; the file goes with it.
  RingHandover handover() const;
  // -1 once the file is gone: the mapping alone keeps the ring then. Users
  // close descriptors that are not theirs and open other files under them.
  int fd() const { return OwnsFile() ? fd_ : -1; }
  void CloseFile();

 private:
  RingWriter(RingHeader* header, uint64_t capacity, int fd);

  bool OwnsFile() const;
  // Bytes for a record, padding before it done, so that no more than `limit`
  // bytes are unread; nullptr: no room.
  char* Place(size_t size, uint64_t limit);
  void Publish(const void* record, size_t size, char* at);
  char* At(uint64_t position) const {
    return reinterpret_cast<char*>(header_) + kRingHeaderBytes +
           (position & (capacity_ - 1));
  }

  RingHeader* const header_;
  const uint64_t capacity_;
  uint64_t limit_;  // 0 while it refuses, else capacity_
  int fd_;
  uint64_t file_device_ = 0;
  uint64_t file_number_ = 0;
  // The writer's own copies: the shared ones are stored, never read back.
  uint64_t head_ = 0;
  uint64_t known_tail_ = 0;
  uint64_t offered_ = 0;
  uint64_t committed_ = 0;
  uint64_t dropped_ = 0;
  uint64_t reported_drops_ = 0;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RING_RING_WRITER_H_
