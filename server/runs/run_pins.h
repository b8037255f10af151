// Runs that somebody reads for longer than a moment and that must not be
// deleted meanwhile.
//
//   RunPins::Pin pin = pins.Hold("run-1");  // until it is destroyed
//   if (pins.IsPinned("run-1")) ...         // leave it
//
// Who deletes asks IsPinned and takes the run out of the registry in one
// critical section of the registry; who reads holds first and then looks
// whether the registry has the run. So one of them sees the other.
//
// Threads: safe on any thread. Pins must not outlive their RunPins.
#ifndef TRAINCHECK_SERVER_RUNS_RUN_PINS_H_
#define TRAINCHECK_SERVER_RUNS_RUN_PINS_H_

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace traincheck::server {

class RunPins {
 public:
  class Pin {
   public:
    Pin(Pin&& other) noexcept
        : pins_(std::exchange(other.pins_, nullptr)),
          run_(std::move(other.run_)) {}
    Pin& operator=(Pin&&) = delete;
    ~Pin() {
      if (pins_ != nullptr) pins_->Release(run_);
    }

   private:
    friend class RunPins;
    Pin(RunPins* pins, std::string run) : pins_(pins), run_(std::move(run)) {}

    RunPins* pins_;
    std::string run_;
  };

  RunPins() = default;
  RunPins(const RunPins&) = delete;
  RunPins& operator=(const RunPins&) = delete;

  [[nodiscard]] Pin Hold(const std::string& run) {
    absl::MutexLock lock(&mutex_);
    ++holders_[run];
    return Pin(this, run);
  }

  bool IsPinned(const std::string& run) const {
    absl::MutexLock lock(&mutex_);
    return holders_.count(run) > 0;
  }

 private:
  void Release(const std::string& run) {
    absl::MutexLock lock(&mutex_);
    const auto at = holders_.find(run);
    if (--at->second == 0) holders_.erase(at);
  }

  mutable absl::Mutex mutex_;
  std::map<std::string, int> holders_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_RUN_PINS_H_
