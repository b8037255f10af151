// How long the calls from one line take: their median, in bounded memory.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_CALL_DURATIONS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_CALL_DURATIONS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

#include "invariants/trace/archive.h"

namespace traincheck {

class CallDurations {
 public:
  void Add(uint64_t us) {
    ++counts_[BucketOf(us)];
    ++count_;
  }
  uint64_t count() const { return count_; }
  // At most a fifth too long. REQUIRES: count() > 0.
  uint64_t MedianUs() const {
    uint64_t below = 0;
    for (const auto& [bucket, count] : counts_) {
      below += count;
      if (2 * below >= count_) return EndOf(bucket);
    }
    return 0;
  }

  void Fields(Archive& archive) { archive(counts_, count_); }

 private:
  // Four buckets for each power of two.
  static uint8_t BucketOf(uint64_t us) {
    if (us < 4) return static_cast<uint8_t>(us);
    const int power = std::bit_width(us) - 1;
    return static_cast<uint8_t>(4 * power + ((us >> (power - 2)) & 3));
  }
  static uint64_t EndOf(uint8_t bucket) {
    if (bucket < 4) return bucket;
    return (uint64_t{5} + bucket % 4) << (std::max(bucket / 4, 2) - 2);
  }

  std::map<uint8_t, uint64_t> counts_;
  uint64_t count_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_CALL_DURATIONS_H_
