// What one call saved or took, and what was live then: the entries and states
// inside a call that writes a checkpoint or loads a state, taken together.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CHECKPOINT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/relations/saved_equals_live/saved_models.h"

namespace traincheck {

struct SavedCheckpoint {
  Call call;
  uint64_t number = 0;  // of the process's checkpoints, from 1
  uint64_t gaps = 0;    // when it began
  uint64_t left_out = 0;
  std::vector<SavedEntry> entries;
  Digests live;
  std::string broken;  // why it cannot be judged; "": it can

  void Fields(Archive& archive);
};

// Which of the two.
struct CheckpointPoints {
  StatePoint entries;
  StatePoint states;
};
inline constexpr CheckpointPoints kSaving = {StatePoint::kSave,
                                             StatePoint::kSave};
inline constexpr CheckpointPoints kLoading = {StatePoint::kLoadStateDict,
                                              StatePoint::kLoad};

// Collects those of one process.
class SavedCheckpoints : public ProcessObserver {
 public:
  explicit SavedCheckpoints(CheckpointPoints points) : points_(points) {}

  void OnCheckpointEntry(const ProcessFacts& facts,
                         const CheckpointEntryEvent& event) override;
  void OnState(const ProcessFacts& facts, const StateEvent& event) override;
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override;
  // Checkpoints that are being written then cannot be judged.
  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override;
  void Fields(Archive& archive) override;

 protected:
  // `before`: the live digests at the checkpoints before it.
  virtual void OnCheckpoint(const ProcessFacts& facts,
                            const SavedCheckpoint& checkpoint,
                            const Digests& before) = 0;

 private:
  using Place = std::pair<uint32_t, uint64_t>;  // ring, call

  const CheckpointPoints points_;
  // By the call; states and entries lie directly in it.
  std::map<Place, SavedCheckpoint> open_;
  Digests before_;
  uint64_t saved_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CHECKPOINT_H_
