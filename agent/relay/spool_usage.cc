#include "agent/relay/spool_usage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace traincheck::agent {
namespace {

// No slot counts for more than this, whatever lies there, so that sums do not
// wrap.
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
// A relay holds the header's lock for a few reads and writes only.
constexpr int kLockTries = 50;
constexpr std::chrono::milliseconds kLockPause{1};
// Slots that exceed the files by more than this are not believed.
constexpr uint64_t kMostDoubt = 64u << 20;

// kCannot: this file system has no such locks.
enum class Taken { kYes, kNo, kCannot };

// Each slot is locked by its own 8 bytes, the header by those at 0. F_OFD locks
// belong to the open file: the kernel releases them when the relay ends.
struct flock Range(int16_t type, size_t offset) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = sizeof(uint64_t);
  return range;
}

Taken TryLock(int fd, size_t offset) {
  struct flock range = Range(F_WRLCK, offset);
  if (fcntl(fd, F_OFD_SETLK, &range) == 0) return Taken::kYes;
  return errno == EAGAIN || errno == EACCES ? Taken::kNo : Taken::kCannot;
}

void Unlock(int fd, size_t offset) {
  struct flock range = Range(F_UNLCK, offset);
  fcntl(fd, F_OFD_SETLK, &range);
}

bool IsLocked(int fd, size_t offset) {
  struct flock range = Range(F_WRLCK, offset);
  // Where it cannot be asked, the owner counts as alive: its bytes stay
  // counted.
  return fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

// Counts are only about right: a difference stops at 0 instead of wrapping
// around.
uint64_t Less(uint64_t from, uint64_t bytes) {
  return from - std::min(from, bytes);
}

uint64_t Nanoseconds(SpoolUsage::TimePoint time) {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(time.time_since_epoch()).count());
}

}  // namespace

// The lock of the header, for a scope. It is waited for only briefly: a relay
// that was stopped with the lock delays nobody, and the next count corrects
// what went past it.
class SpoolUsage::HeaderLock {
 public:
  HeaderLock(int fd, int tries) : fd_(fd) {
    while (!(held_ = TryLock(fd, 0) == Taken::kYes) && --tries > 0) {
      std::this_thread::sleep_for(kLockPause);
    }
  }
  ~HeaderLock() {
    if (held_) Unlock(fd_, 0);
  }
  HeaderLock(const HeaderLock&) = delete;
  HeaderLock& operator=(const HeaderLock&) = delete;
  bool held() const { return held_; }

 private:
  const int fd_;
  bool held_ = false;
};

SpoolUsage::SpoolUsage(int folder, const std::string& name)
    : fd_(openat(folder, name.c_str(),
                 O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  static_assert(sizeof(Table) == 4096);
  if (fd_.valid()) Join();
}

// Takes the first slot that no living relay holds.
void SpoolUsage::Join() {
  Taken taken = Taken::kNo;
  for (size_t i = 0; i < kSlots && taken == Taken::kNo; ++i) {
    taken = TryLock(fd_.get(), offsetof(Table, slots) + i * sizeof(uint64_t));
    if (taken == Taken::kYes) slot_ = i;
  }
  // No locks here, or more relays than slots.
  if (taken != Taken::kYes) return fd_.Close();
  const HeaderLock lock(fd_.get(), kLockTries);
  Table table = Read();
  // A dead relay had this slot; its files are left.
  table.left += std::exchange(table.slots[slot_], 0);
  Sweep(&table);
  PutOwn();
}

// The file may be short, empty or damaged: what is not there reads as zero.
SpoolUsage::Table SpoolUsage::Read() const {
  Table table = {};
  [[maybe_unused]] const ssize_t n = pread(fd_.get(), &table, sizeof table, 0);
  table.left = std::min(table.left, kMostBytes);
  for (uint64_t& slot : table.slots) slot = std::min(slot, kMostBytes);
  return table;
}

// A write that fails, on a full disk, leaves the old value, which is about as
// right.
void SpoolUsage::Put(size_t offset, uint64_t value) const {
  [[maybe_unused]] const ssize_t n =
      pwrite(fd_.get(), &value, sizeof value, static_cast<off_t>(offset));
}

void SpoolUsage::PutOwn() const {
  if (!fd_.valid()) return;
  Put(offsetof(Table, slots) + slot_ * sizeof(uint64_t), own_);
}

// The own slot is taken from memory: the file's may be older.
uint64_t SpoolUsage::Living(const Table& table) const {
  uint64_t bytes = own_;
  for (size_t i = 0; i < kSlots; ++i) {
    if (i != slot_) bytes += table.slots[i];
  }
  return bytes;
}

// Without a file, what this relay counted itself stands for the others.
uint64_t SpoolUsage::Total() const {
  if (!fd_.valid()) return left_ + own_;
  const Table table = Read();
  return table.left + Living(table);
}

void SpoolUsage::Add(uint64_t bytes) {
  own_ += bytes;
  PutOwn();
}

void SpoolUsage::Subtract(uint64_t bytes) {
  own_ = Less(own_, bytes);
  PutOwn();
}

// What dead relays had counts as files that are left. Their slots are free for
// others.
void SpoolUsage::Sweep(Table* table) const {
  for (size_t i = 0; i < kSlots; ++i) {
    const size_t offset = offsetof(Table, slots) + i * sizeof(uint64_t);
    if (i == slot_ || table->slots[i] == 0 || IsLocked(fd_.get(), offset)) {
      continue;
    }
    table->left += std::exchange(table->slots[i], 0);
    Put(offset, 0);
  }
  Put(offsetof(Table, left), table->left);
}

// Moves bytes from "left" to this relay's slot, so that the sum stays as it is.
void SpoolUsage::Adopt(uint64_t bytes) {
  if (fd_.valid()) {
    const HeaderLock lock(fd_.get(), kLockTries);
    // Its relay may have died a moment ago.
    Table table = Read();
    Sweep(&table);
    Put(offsetof(Table, left), Less(table.left, bytes));
  }
  left_ = Less(left_, bytes);
  Add(bytes);
}

// The reverse of Adopt: the file stays when its relay ends.
void SpoolUsage::Leave(uint64_t bytes) {
  if (fd_.valid()) {
    const HeaderLock lock(fd_.get(), kLockTries);
    Put(offsetof(Table, left), Read().left + bytes);
  }
  left_ += bytes;
  Subtract(bytes);
}

// True for one relay in a period; it counts the files of the folder.
bool SpoolUsage::MustCount(TimePoint now, std::chrono::seconds period) {
  const uint64_t now_ns = Nanoseconds(now);
  const uint64_t period_ns = Nanoseconds(TimePoint(period));
  const auto due = [&](uint64_t counted_at) {
    // A time ahead of the clock is damage or another container's. It must not
    // put the count off for ever.
    return counted_at == 0 || counted_at > now_ns ||
           now_ns - counted_at >= period_ns;
  };
  // Its own clock decides, too: that of another container may differ.
  if (!due(counted_at_ns_)) return false;
  if (fd_.valid() && !due(Read().counted_at_ns)) return false;
  if (fd_.valid()) {
    // Whoever holds the lock may be counting already: nobody waits for that.
    const HeaderLock lock(fd_.get(), /*tries=*/1);
    // Asked again under the lock: another relay may have been faster.
    if (!lock.held() || !due(Read().counted_at_ns)) return false;
    Put(offsetof(Table, counted_at_ns), now_ns);
  }
  counted_at_ns_ = now_ns;
  return true;
}

// The sum of the files is the truth; "left" becomes what the living slots do
// not explain.
void SpoolUsage::Counted(uint64_t bytes) {
  left_ = Less(bytes, own_);
  if (!fd_.valid()) return;
  const HeaderLock lock(fd_.get(), kLockTries);
  Table table = Read();
  Sweep(&table);
  // The files contradict the slots: some are damaged. Their owners write them
  // again with their next batch.
  if (Living(table) > 2 * bytes + kMostDoubt) {
    for (size_t i = 0; i < kSlots; ++i) {
      if (i == slot_ || table.slots[i] == 0) continue;
      table.slots[i] = 0;
      Put(offsetof(Table, slots) + i * sizeof(uint64_t), 0);
    }
  }
  Put(offsetof(Table, left), Less(bytes, Living(table)));
}

}  // namespace traincheck::agent
