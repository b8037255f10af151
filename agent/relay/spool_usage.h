// How much all relays of a user have spooled on this node: each counts its own
// bytes in a slot of a small file that lies beside the spool files, so that no
// relay has to look at those of the others.
//
//   counted at u64 (nanoseconds) | left u64 | slots, 510 x u64
//
// A relay owns its slot as long as it holds the lock on these bytes (F_OFD):
// the kernel frees it, however the relay ends. What a dead relay's slot says is
// then of files that are left, as is what its files held that nobody goes on
// with. `left` changes under the lock of the header. The file is read and
// written, never mapped: who cuts it off ends no relay.
//
// All of it is about right, not exact: files can be deleted by hand, and a
// relay can die between a write and its count. So from time to time, one of
// the relays counts the files, and sets `left` to what the slots do not say.
// Where the file cannot be made or locked, a relay counts itself and the files.
//
// Owned by the SpoolDirectory. Threads: externally synchronised.
#ifndef TRAINCHECK_AGENT_RELAY_SPOOL_USAGE_H_
#define TRAINCHECK_AGENT_RELAY_SPOOL_USAGE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/relay/unique_fd.h"

namespace traincheck::agent {

class SpoolUsage {
 public:
  // Monotonic, and so the same for all relays of a node until it starts anew.
  using TimePoint = std::chrono::steady_clock::time_point;

  // Joins the file `name` in the open `folder`.
  SpoolUsage(int folder, const std::string& name);
  SpoolUsage(const SpoolUsage&) = delete;
  SpoolUsage& operator=(const SpoolUsage&) = delete;

  // Of all relays, and of what dead ones left.
  uint64_t Total() const;

  void Add(uint64_t bytes);
  void Subtract(uint64_t bytes);
  // A file that was left is this relay's from now on, and the reverse.
  void Adopt(uint64_t bytes);
  void Leave(uint64_t bytes);

  // Has nobody counted for `period`? Then the caller has to, and nobody else.
  bool MustCount(TimePoint now, std::chrono::seconds period);
  // All spool files together have this size.
  void Counted(uint64_t bytes);

 private:
  static constexpr size_t kSlots = 510;
  struct Table {
    uint64_t counted_at_ns;
    uint64_t left;
    uint64_t slots[kSlots];
  };
  class HeaderLock;

  void Join();
  // Zeros behind the end of the file.
  Table Read() const;
  void Put(size_t offset, uint64_t value) const;
  void PutOwn() const;
  // Moves what dead relays had in their slots to what is left. REQUIRES: the
  // header is locked.
  void Sweep(Table* table) const;
  uint64_t Living(const Table& table) const;

  UniqueFd fd_;  // invalid: not shared
  size_t slot_ = kSlots;
  uint64_t own_ = 0;
  uint64_t counted_at_ns_ = 0;  // by this relay
  // As it counted; for where there is no file.
  uint64_t left_ = 0;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_USAGE_H_
