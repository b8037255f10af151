// What checker and inference read: the batches of one process, in order, as
// the store holds them.
#ifndef TRAINCHECK_INVARIANTS_TRACE_STORED_BATCH_H_
#define TRAINCHECK_INVARIANTS_TRACE_STORED_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

namespace traincheck {

// Bytes of ring positions [from, to); records counts those that are not
// padding.
struct RingSlice {
  uint32_t ring = 0;
  uint64_t from = 0;
  uint64_t to = 0;
  uint32_t records = 0;

  template <typename Archive>
  void Fields(Archive& archive) {
    archive(ring, from, to, records);
  }
};

// The slices lie in `plain` one after the other, the definition ring first. A
// batch without slices says that time has passed: the process was alive at
// `quiet_us` by the clock of its records, and had recorded nothing more.
struct StoredBatch {
  uint64_t number = 0;
  std::vector<RingSlice> slices;
  std::string plain;      // records (proto/record_format.h), uncompressed
  uint64_t quiet_us = 0;  // 0: of a batch with slices

  template <typename Archive>
  void Fields(Archive& archive) {
    archive(number, slices, plain, quiet_us);
  }
};

// How a process ended, as its relay or the daemon stored it.
enum class ProcessEnd {
  kClean,        // the interpreter shut down in order
  kDied,         // killed, os._exit
  kLost,         // nothing heard from its relay any more
  kRaised,       // an exception that nobody caught
  kInterrupted,  // KeyboardInterrupt: SIGINT
};
inline constexpr ProcessEnd kLastProcessEnd = ProcessEnd::kInterrupted;

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_STORED_BATCH_H_
