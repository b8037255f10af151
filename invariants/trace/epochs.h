// Fact "epoch": which pass over the training data it is.
//
// Type: integer from 0. Inputs: fetches of training, ended iterators,
// backwards. The training loader is the one whose fetch a backward followed
// last; the pass of its first backward begins an epoch and every later one the
// next, at its first batch. A pass that is read without gradients is none. A
// loader that takes over from one whose
// iterator has ended (a new loader an epoch) goes on counting; one that takes
// turns with another (several tasks) counts for itself. Unknown before the
// first backward and without a loader.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRACE_EPOCHS_H_
#define TRAINCHECK_INVARIANTS_TRACE_EPOCHS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "invariants/trace/archive.h"

namespace traincheck {

class Epochs {
 public:
  void Fetched(uint32_t loader, uint64_t batch) {
    fetched_from_ = loader;
    if (batch != 0) return;
    ++loaders_[loader].passes;
    loaders_[loader].ended = false;
  }
  void IteratorEnded(uint32_t loader) { loaders_[loader].ended = true; }

  void Backward() {
    if (fetched_from_ == 0 || fetched_from_ == training_) return;
    Loader& next = loaders_[fetched_from_];
    if (!next.trains) {
      next.trains = true;
      next.first_pass = next.passes;
      next.first_epoch = FirstEpochAfter(training_);
    }
    training_ = fetched_from_;
  }

  std::optional<uint64_t> current() const {
    const auto found = loaders_.find(training_);
    if (found == loaders_.end() || !found->second.trains) return std::nullopt;
    return found->second.epoch();
  }

  void Fields(Archive& archive) { archive(loaders_, fetched_from_, training_); }

 private:
  struct Loader {
    uint64_t passes = 0;
    uint64_t first_pass = 0;  // count of them at its first backward
    uint64_t first_epoch = 0;
    bool trains = false;
    bool ended = false;  // its newest pass

    uint64_t epoch() const { return first_epoch + passes - first_pass; }
    void Fields(Archive& archive) {
      archive(passes, first_pass, first_epoch, trains, ended);
    }
  };

  uint64_t FirstEpochAfter(uint32_t loader) const {
    const auto found = loaders_.find(loader);
    if (found == loaders_.end() || !found->second.trains) return 0;
    return found->second.ended ? found->second.epoch() + 1 : 0;
  }

  std::map<uint32_t, Loader> loaders_;
  uint32_t fetched_from_ = 0;
  uint32_t training_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_EPOCHS_H_
