// Facts of loaders: "loader.trains", "loader.consumed", "sampler.shuffles", and
// the digest of the indices of a pass so far.
//
// Inputs: marks of iterators and batches, digests of the indices that samplers
// yield, what loaders say of their samplers, backwards. Two passes are compared
// by their first batches. Unknown: before a second pass; of passes that
// have fewer batches or indices, or of which some batch was not recorded (a
// step that was not sampled, missing records, indices that are no integers).
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_LOADER_PASSES_H_
#define TRAINCHECK_INVARIANTS_FACTS_LOADER_PASSES_H_

#include <cstdint>
#include <map>
#include <optional>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class LoaderPasses final : public FactTracker {
 public:
  // Passes are compared by their first batches, as many as have so many indices
  // for certain. Fewer may be in the same order by chance: four images, one in
  // a batch, are in one epoch of 24.
  static constexpr uint64_t kIndices = 16;

  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override;
  void OnState(const StateEvent& event) override;
  void OnScalar(const ScalarEvent& event) override;
  void OnMark(const MarkEvent& mark) override;
  void OnGap() override;

  // The loader that this thread iterated over or read from last; 0: none.
  uint32_t LoaderOn(uint32_t ring) const;
  // Its passes so far, with the one that goes on.
  uint64_t Passes(uint32_t loader) const;
  // Batches by which its passes are compared.
  uint64_t Prefix(uint32_t loader) const;
  // Was the last batch the one with which the pass can be compared: the first
  // behind one that was trained with, once enough are read? Once a pass; a look
  // at a batch (next(iter(loader))) is not a pass of the training.
  bool IsCompared(uint32_t loader) const;

  Tri Trains(uint32_t loader) const;
  // Was the pass before this one read to its end?
  Tri Consumed(uint32_t loader) const;
  // Does this pass have another order than the one before?
  Tri Shuffles(uint32_t loader) const;
  // Does its sampler draw at random? Unknown: it is one of the user's.
  Tri DrawsAtRandom(uint32_t loader) const;
  // Of the indices of these batches, in their order.
  std::optional<uint64_t> PrefixDigest(uint32_t loader) const;

  void Fields(Archive& archive) override;

 private:
  // What samplers yielded in one pass.
  struct Indices {
    uint64_t batches = 0;
    uint64_t digest = 0;
    bool whole = true;  // none was missed

    void Add(uint64_t batch, uint64_t prefix);
    std::optional<uint64_t> Digest(uint64_t prefix) const;
    void Fields(Archive& archive);
  };
  struct Loader {
    uint64_t passes = 0;
    uint64_t ordinal = 0;  // of the iterator
    uint64_t fetched = 0;
    uint64_t compared_at = 0;      // batches; 0: not yet
    Tri exhausted = Tri::kNo;      // this pass
    Tri consumed = Tri::kUnknown;  // the one before
    bool trains = false;
    bool trains_now = false;  // with a batch of this pass
    Tri random = Tri::kUnknown;
    uint64_t prefix = kIndices;  // batches; those of unknown size may have one
    Indices early;               // drawn ahead for the next pass
    Indices indices;
    std::optional<uint64_t> prefix_before;

    void Fields(Archive& archive);
  };

  void Begin(Loader* loader, uint64_t ordinal);
  void Fetched(Loader* loader, uint64_t batches);
  const Loader* Find(uint32_t loader) const;
  Loader& At(uint32_t loader);

  std::map<uint32_t, Loader> loaders_;
  std::map<uint32_t, uint32_t> current_;  // loader by ring
  bool gap_ = false;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_LOADER_PASSES_H_
