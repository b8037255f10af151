#include "agent/ring/ring_writer.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "agent/ring/descriptors.h"
#include "proto/record_format.h"

namespace traincheck::agent {
namespace {

// By system call: glibc has the function since 2.27 only.
int CreateMemfd() {
  return static_cast<int>(syscall(SYS_memfd_create, "traincheck-ring",
                                  MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

// Growing a file beyond the limit would raise SIGXFSZ.
bool MayHaveSize(size_t bytes) {
  rlimit limit = {};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur;
}

// glibc has fstat since 2.33 only; before, headers call __fxstat.
bool Identify(int fd, struct stat* status) {
  return syscall(SYS_fstat, fd, status) == 0;
}

}  // namespace

// Runs in the training process, in the thread that the ring is for: `tid` is
// its own.
std::unique_ptr<RingWriter> RingWriter::Create(uint32_t ring,
                                               uint64_t capacity_bytes) {
  const size_t bytes = kRingHeaderBytes + capacity_bytes;
  if (!MayHaveSize(bytes)) {
    errno = EFBIG;
    return nullptr;
  }
  // The descriptor is moved away from the low numbers only if the limit is
  // generous.
  int fd = CreateMemfd();
  if (fd < 0) return nullptr;
  if (HasDescriptorsToSpare()) fd = MoveUp(fd);
  void* address = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    // A reader must never meet a file that became shorter (SIGBUS). F_SEAL_SEAL
    // keeps anybody from changing the seals afterwards.
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (address == MAP_FAILED) {
    const int error = errno;
    close(fd);
    errno = error;
    return nullptr;
  }
  // A ring has one writer: a child of fork must not go on writing in its
  // parent's ring.
  madvise(address, bytes, MADV_DONTFORK);
  RingHeader* header = new (address) RingHeader{};
  header->magic = kRingMagic;
  header->version = kRingVersion;
  header->ring = ring;
  header->capacity_bytes = capacity_bytes;
  header->pid = static_cast<uint32_t>(getpid());
  header->tid = static_cast<uint32_t>(syscall(SYS_gettid));
  return std::unique_ptr<RingWriter>(
      new RingWriter(header, capacity_bytes, fd));
}

// The file is remembered by device and inode, because its number may later
// belong to another file.
RingWriter::RingWriter(RingHeader* header, uint64_t capacity, int fd)
    : header_(header), capacity_(capacity), limit_(capacity), fd_(fd) {
  struct stat status;
  if (!Identify(fd, &status)) return;
  file_device_ = status.st_dev;
  file_number_ = status.st_ino;
}

RingWriter::~RingWriter() {
  CloseFile();
  munmap(header_, kRingHeaderBytes + capacity_);
}

// Programs close descriptors that are not theirs. If the number was reused for
// a file of the user's, neither handing it over nor closing it would be right.
bool RingWriter::OwnsFile() const {
  struct stat status;
  return fd_ >= 0 && Identify(fd_, &status) && status.st_dev == file_device_ &&
         status.st_ino == file_number_;
}

void RingWriter::CloseFile() {
  if (OwnsFile()) close(fd_);
  fd_ = -1;
}

RingHandover RingWriter::handover() const {
  return {header_->magic,          header_->version, header_->ring,
          header_->capacity_bytes, header_->pid,     header_->tid};
}

// The record path: no lock, no allocation, no system call.
bool RingWriter::Append(const void* record, size_t size) {
  // Drops are reported before the next record that fits, so that a reader knows
  // where in the sequence records are missing.
  if (dropped_ != reported_drops_ && limit_ != 0) [[unlikely]] {
    ReportDrops();
  }
  // Counted before it is tried: a writer that is killed in between is ahead by
  // one record, which readers allow for (RING_ABI.md, rule 7).
  header_->offered_records.store(++offered_, std::memory_order_relaxed);
  char* at = Place(size, limit_);
  if (at == nullptr) [[unlikely]] {
    header_->dropped_records.store(++dropped_, std::memory_order_relaxed);
    return false;
  }
  Publish(record, size, at);
  return true;
}

// For definitions and Drops records. They are tried again later, so a failure
// is not counted as a drop.
bool RingWriter::TryAppend(const void* record, size_t size) {
  char* at = Place(size, capacity_);
  if (at == nullptr) return false;
  header_->offered_records.store(++offered_, std::memory_order_relaxed);
  Publish(record, size, at);
  return true;
}

// Positions never wrap; only At() maps them into the data area. Room is checked
// for padding and record together, so that padding is never left without its
// record.
char* RingWriter::Place(size_t size, uint64_t limit) {
  const uint64_t left = capacity_ - (head_ & (capacity_ - 1));
  const uint64_t padding = size > left ? left : 0;
  const uint64_t need = padding + size;
  // The reader's line is looked at only where the tail that is known leaves no
  // room: it is in another processor's cache.
  if (head_ - known_tail_ + need > limit) {
    const uint64_t tail = header_->tail.load(std::memory_order_acquire);
    // A tail that makes no sense is a full ring.
    if (tail > head_ || head_ - tail + need > limit) return nullptr;
    known_tail_ = tail;
  }
  if (padding > 0) {
    // Less than a record, so that its size fits into 16 bits. It is published
    // together with the record behind it.
    const RecordHeader filler = {static_cast<uint16_t>(padding),
                                 static_cast<uint8_t>(RecordType::kPadding), 0,
                                 0};
    std::memcpy(At(head_), &filler, sizeof filler);
    head_ += padding;
  }
  return At(head_);
}

void RingWriter::Publish(const void* record, size_t size, char* at) {
  std::memcpy(at, record, size);
  head_ += size;
  // The head last, with release: who sees it sees the record, and its count.
  header_->committed_records.store(++committed_, std::memory_order_relaxed);
  header_->head.store(head_, std::memory_order_release);
}

// A record type of its own: the counters of the header alone do not say between
// which records something is missing.
void RingWriter::ReportDrops() {
  if (dropped_ == reported_drops_) return;
  // The total, not what came since the last one: a Drops record that is lost is
  // made up for by the next.
  const DropsRecord drops = {
      {sizeof drops, static_cast<uint8_t>(RecordType::kDrops), 0, 0}, dropped_};
  if (TryAppend(&drops, sizeof drops)) reported_drops_ = dropped_;
}

}  // namespace traincheck::agent
