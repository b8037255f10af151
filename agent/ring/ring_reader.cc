#include "agent/ring/ring_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace traincheck::agent {
namespace {

bool IsAligned(uint64_t position) { return position % kRecordAlignment == 0; }

// Checks the message alone, before the file is touched.
std::string CheckHandover(const RingHandover& handover) {
  if (handover.magic != kRingMagic) return "the message is not a ring handover";
  if (handover.version != kRingVersion) {
    return "ring version " + std::to_string(handover.version) +
           ", this relay reads version " + std::to_string(kRingVersion);
  }
  if (handover.capacity_bytes < kMinRingBytes ||
      handover.capacity_bytes > kMaxRingBytes ||
      !std::has_single_bit(handover.capacity_bytes)) {
    return "capacity " + std::to_string(handover.capacity_bytes) +
           " is not a power of two from " + std::to_string(kMinRingBytes) +
           " to " + std::to_string(kMaxRingBytes);
  }
  return "";
}

// A file that can shrink could end this process by SIGBUS. Writers seal their
// rings; one that did not, and does not let us do it, is refused.
std::string SealAgainstShrinking(int fd) {
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);  // fails where it is sealed already
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) return "";
  return "the file may shrink: it has no seal F_SEAL_SHRINK";
}

// The mapping must lie within the file, otherwise reading its end raises
// SIGBUS.
std::string CheckFile(int fd, uint64_t capacity_bytes) {
  struct stat status;
  if (fstat(fd, &status) != 0) {
    return std::string("fstat: ") + std::strerror(errno);
  }
  // A larger file does no harm: only what is mapped has to be there.
  const uint64_t want = kRingHeaderBytes + capacity_bytes;
  if (!S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) < want) {
    return "the file has " + std::to_string(status.st_size) +
           " bytes, the ring needs " + std::to_string(want);
  }
  return "";
}

}  // namespace

std::unique_ptr<RingReader> RingReader::Map(int fd,
                                            const RingHandover& handover,
                                            std::string* error) {
  *error = CheckHandover(handover);
  if (error->empty()) *error = SealAgainstShrinking(fd);
  // After the seal: a size that is right now stays right.
  if (error->empty()) *error = CheckFile(fd, handover.capacity_bytes);
  if (!error->empty()) return nullptr;
  void* address = mmap(nullptr, kRingHeaderBytes + handover.capacity_bytes,
                       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    *error = std::string("mmap: ") + std::strerror(errno);
    return nullptr;
  }
  std::unique_ptr<RingReader> reader(
      new RingReader(static_cast<RingHeader*>(address)));
  reader->capacity_ = handover.capacity_bytes;
  if (!reader->CheckHeader(handover, error)) return nullptr;
  return reader;
}

RingReader::~RingReader() { munmap(header_, kRingHeaderBytes + capacity_); }

// The header was written by the training process, so it is compared field by
// field with the handover. Afterwards the constant fields are used from this
// process's copies only.
bool RingReader::CheckHeader(const RingHandover& handover, std::string* error) {
  if (header_->magic != handover.magic ||
      header_->version != handover.version || header_->ring != handover.ring ||
      header_->pid != handover.pid || header_->tid != handover.tid ||
      header_->capacity_bytes != handover.capacity_bytes) {
    *error = "the ring's header says something else than its handover";
    return false;
  }
  ring_ = handover.ring;
  tid_ = handover.tid;
  // What lies below the tail was safe elsewhere to the reader before this one.
  // With all positions there, Refresh checks that tail <= head <= tail +
  // capacity.
  const uint64_t tail = header_->tail.load(std::memory_order_relaxed);
  head_ = read_ = released_ = tail;
  // Refresh quarantines on a bad head; a fresh reader reports that as an error
  // of the mapping.
  if (!IsAligned(tail) || !Refresh()) {
    *error = error_.empty() ? "the tail is not divisible by 8" : error_;
    return false;
  }
  return true;
}

// Nothing is taken from a quarantined ring any more. Returns false for the
// callers' return statements.
bool RingReader::Quarantine(const std::string& what) {
  error_ = "ring " + std::to_string(ring_) + " of thread " +
           std::to_string(tid_) + ": " + what;
  return false;
}

bool RingReader::Refresh() {
  if (quarantined()) return false;
  // Acquire, for the writer's release: all bytes below are whole records.
  const uint64_t head = header_->head.load(std::memory_order_acquire);
  if (!IsAligned(head)) {
    return Quarantine("head " + std::to_string(head) +
                      " is not divisible by 8");
  }
  // A writer never takes back what it has published, so this header is damaged.
  if (head < head_) {
    return Quarantine("head went back from " + std::to_string(head_) + " to " +
                      std::to_string(head));
  }
  // Rule 1 of RING_ABI.md. Without this bound, bytes would be taken that the
  // writer has already overwritten.
  if (head - released_ > capacity_) {
    return Quarantine("head " + std::to_string(head) + " is more than " +
                      std::to_string(capacity_) + " bytes ahead of tail " +
                      std::to_string(released_));
  }
  head_ = head;
  return true;
}

// Each turn of the loop takes one contiguous part: up to the end of the data
// area, then from its start. `limit` bounds a batch, not a record.
RingChunk RingReader::Take(size_t limit, std::string* out,
                           const RecordVisitor& visit) {
  RingChunk chunk = {read_, read_, 0};
  limit -= limit % kRecordAlignment;
  while (!quarantined() && read_ < head_ && limit > 0) {
    // Up to the end of the data area: no record crosses it.
    const uint64_t offset = read_ & (capacity_ - 1);
    const uint64_t there = std::min(head_ - read_, capacity_ - offset);
    const size_t size = std::min<uint64_t>(there, limit);
    const size_t begin = out->size();
    // Copied before they are looked at: the writer could change them behind a
    // check.
    out->append(data() + offset, size);
    // `cut` says that the limit ended the copy, so that a record which goes on
    // behind it is no damage.
    const size_t whole =
        Walk(std::string_view(*out).substr(begin), size < there, &chunk, visit);
    out->resize(begin + whole);
    read_ += whole;
    limit -= whole;
    // The rest did not fit below the limit, or the ring was quarantined.
    if (whole < size) break;
  }
  chunk.to = read_;
  return chunk;
}

// Sizes and types are checked by RecordReader on the copy.
size_t RingReader::Walk(std::string_view bytes, bool cut, RingChunk* chunk,
                        const RecordVisitor& visit) {
  RecordReader records(bytes);
  size_t whole = 0;
  while (records.Next()) {
    whole += records.header().size_bytes;
    if (records.type() != RecordType::kPadding) ++chunk->records;
    visit(records);
  }
  // A record that is longer than what lies here is whole in the ring if more
  // lies there, and waits for the next call; anything else is damage. At least
  // 8 bytes are left, because sizes and limits are divisible by 8.
  if (records.ok()) return whole;
  uint16_t size;
  std::memcpy(&size, bytes.data() + whole, sizeof size);
  const bool goes_on = cut && IsAligned(size) && size > bytes.size() - whole;
  if (!goes_on) {
    Quarantine("at position " + std::to_string(read_) + ": " + records.error());
  }
  return whole;
}

// The part of the ring up to the end of the data area, then the part from its
// start.
std::string RingReader::Copy(uint64_t from, uint64_t to) const {
  std::string bytes;
  while (from < to) {
    const uint64_t offset = from & (capacity_ - 1);
    const size_t size = std::min<uint64_t>(to - from, capacity_ - offset);
    bytes.append(data() + offset, size);
    from += size;
  }
  return bytes;
}

std::string RingReader::Peek(size_t limit) const {
  return Copy(read_, std::min<uint64_t>(head_, read_ + limit));
}

// Used when a store lacks definitions that were delivered and released before:
// the bytes often still lie in the ring.
bool RingReader::PeekHistory(uint64_t from, std::string* out,
                             RingChunk* chunk) const {
  if (quarantined() || from > read_ || !IsAligned(from) ||
      read_ - from > capacity_) {
    return false;
  }
  // Copied first and checked behind that: the writer may come round meanwhile.
  *out = Copy(from, read_);
  *chunk = {from, read_, 0};
  // What the writer was just writing, not yet published, may have come round
  // as well, unless it is forbidden to by the tail: a record, and before it
  // padding to the end of the data area, which is shorter than the record.
  const uint64_t head = header_->head.load(std::memory_order_acquire);
  const uint64_t written = std::min(head + 2 * kMaxRecordBytes,  //
                                    released_ + capacity_);
  if (head < head_ || written > from + capacity_) return false;
  RecordReader records(*out);
  while (records.Next()) {
    if (records.type() != RecordType::kPadding) ++chunk->records;
  }
  return records.ok();
}

// Used at a takeover: the store or the spool of a former relay already has the
// bytes up to `position`.
bool RingReader::SkipTo(uint64_t position) {
  if (position <= read_) return true;
  if (quarantined() || !IsAligned(position) || position > head_) return false;
  read_ = position;
  Release(position);
  return true;
}

void RingReader::Release(uint64_t position) {
  if (position <= released_) return;
  released_ = position;
  // Release, for the writer's acquire: it overwrites nothing that is still
  // being copied.
  header_->tail.store(position, std::memory_order_release);
}

// For rings that are given up, quarantined ones included: the writer goes on
// without dropping.
void RingReader::Discard() {
  const uint64_t head = header_->head.load(std::memory_order_acquire);
  // With such a head the tail stays where it is: the ring fills up, and its
  // writer drops and counts.
  if (!IsAligned(head) || head < head_ || head - released_ > capacity_) return;
  head_ = read_ = head;
  Release(head);
}

RingCounters RingReader::counters() const {
  // Relaxed: the counters may run apart by a record, and no bytes are read by
  // them.
  const auto relaxed = std::memory_order_relaxed;
  return {header_->head.load(relaxed), header_->offered_records.load(relaxed),
          header_->committed_records.load(relaxed),
          header_->dropped_records.load(relaxed)};
}

}  // namespace traincheck::agent
