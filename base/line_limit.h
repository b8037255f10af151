// How many log lines of one kind may come in a while, and how many were left
// out, so that who makes the events does not fill the disk with them.
//
//   if (limit.Allows(absl::Now())) spdlog::info(...);
//   ...
//   // Now and then:
//   if (const uint64_t left_out = limit.TakeLeftOut(absl::Now()))
//     spdlog::info("... left_out={}", left_out);
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_BASE_LINE_LIMIT_H_
#define TRAINCHECK_BASE_LINE_LIMIT_H_

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace traincheck {

class LineLimit {
 public:
  // At most `lines` from the first one on for `period`; then anew.
  LineLimit(int lines, absl::Duration period)
      : lines_(lines), period_(period) {}

  bool Allows(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    if (now - began_ >= period_) {
      began_ = now;
      written_ = 0;
    }
    if (written_ < lines_) {
      ++written_;
      return true;
    }
    ++left_out_;
    return false;
  }

  // What Allows refused since the last such answer; 0 until the period is over.
  uint64_t TakeLeftOut(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    if (now - began_ < period_) return 0;
    return std::exchange(left_out_, 0);
  }

 private:
  const int lines_;
  const absl::Duration period_;
  absl::Mutex mutex_;
  absl::Time began_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int written_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_LINE_LIMIT_H_
