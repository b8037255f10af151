// How long relays are to let records gather before they send a batch. A batch
// costs the daemon a few tenths of a millisecond, however little is in it, so
// all streams together may send so many a second, and the more there are, the
// less often each of them sends.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_INGEST_BATCH_PACE_H_
#define TRAINCHECK_SERVER_INGEST_BATCH_PACE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace traincheck::server {

class BatchPace {
 public:
  // Of all streams; a larger batch, which waits for nothing, may come besides.
  static constexpr uint64_t kBatchesASecond = 1'000;
  // What a violation may be shown later by it.
  static constexpr uint64_t kMostGatherMs = 1'000;

  BatchPace() = default;
  BatchPace(const BatchPace&) = delete;
  BatchPace& operator=(const BatchPace&) = delete;

  void SetStreams(size_t streams) {
    gather_ms_ = static_cast<uint32_t>(
        std::min<uint64_t>(streams * 1'000 / kBatchesASecond, kMostGatherMs));
  }
  uint32_t gather_ms() const { return gather_ms_; }

 private:
  std::atomic<uint32_t> gather_ms_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_BATCH_PACE_H_
