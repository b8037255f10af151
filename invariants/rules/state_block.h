// The states of many variables at one state point, taken together: all of
// pre_step or of post_step of one optimizer step, or all of forward_begin
// inside the first training call of a wrapper in a step. Both forms of
// Consistent read these.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_STATE_BLOCK_H_
#define TRAINCHECK_INVARIANTS_RULES_STATE_BLOCK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/facts/variable_state.h"

namespace traincheck {

struct BlockEntry {
  uint32_t variable = 0;
  std::optional<uint64_t> data;  // digests; nullopt: not recorded
  std::optional<uint64_t> grad;
  Writer data_writer;
  Writer grad_writer;

  void Fields(Archive& archive);
};

struct StateBlock {
  StatePoint point = StatePoint::kNone;
  uint32_t ring = 0;
  uint64_t call = 0;
  uint32_t object = 0;  // the optimizer or the wrapper
  // Place of the object among those of its kind: the same on every rank.
  uint32_t ordinal = 0;
  // Place of the block in the object's own count, growing; the same on every
  // rank. nullopt: not known, because records are missing.
  std::optional<uint64_t> index;
  std::optional<uint64_t> step;  // nullopt: not known
  std::vector<BlockEntry> entries;
  std::string broken;  // why it cannot be judged; "": it can

  void Fields(Archive& archive);
};

// The replica group whose wrapper this object is, and its place among the
// groups of the process, the same on every rank; null: none.
const ReplicaGroupInfo* GroupOfWrapper(const ProcessFacts& facts,
                                       uint32_t object, uint32_t* ordinal);

// Collects the blocks of one process.
class StateBlocks : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override;
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override;
  // Blocks of calls that are open then cannot be judged.
  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override;
  void OnState(const ProcessFacts& facts, const StateEvent& event) override;
  void Fields(Archive& archive) override;

 protected:
  virtual void OnBlock(const ProcessFacts& facts, const StateBlock& block) = 0;

 private:
  struct Open {
    uint64_t gaps = 0;
    RecordedSince recorded;
    std::vector<StateBlock> blocks;  // by point; one at least

    void Fields(Archive& archive);
  };
  void Close(const ProcessFacts& facts, const std::string& broken, Open open);
  // What a block would hold had its step been sampled.
  static void AddUnrecorded(const ProcessFacts& facts, StateBlock* block);
  Open* Innermost(uint32_t ring, StatePoint point, uint32_t object);
  void OpenStep(const ProcessFacts& facts, const Call& call);
  void OpenForward(const ProcessFacts& facts, const Call& call);

  std::vector<Open> open_;
  // The last step with a training call, by wrapper.
  std::map<uint32_t, uint64_t> forwards_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_STATE_BLOCK_H_
