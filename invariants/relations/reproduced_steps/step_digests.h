// Digests of what each optimizer step of a process begins with.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_STEP_DIGESTS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_STEP_DIGESTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "invariants/facts/process_facts.h"
#include "invariants/trace/archive.h"

namespace traincheck {

struct StepDigest {
  uint64_t settings = 0;   // which optimizer, with which learning rates
  uint64_t rows = 0;       // indices that samplers have yielded so far
  uint64_t weights = 0;    // that it holds
  uint64_t gradients = 0;  // of these
  bool complete = false;   // all of these were read

  bool operator==(const StepDigest& other) const = default;
};

class StepDigests {
 public:
  // Instead of a digest of rows or of a generator: some could not be read.
  static constexpr uint64_t kUnread = ~uint64_t{0};

  // Each is to be given the events of one process in their order.
  void OnCallBegin(const ProcessFacts& facts, const Call& call);
  void OnState(const ProcessFacts& facts, const StateEvent& event);

  // At the end of a call. None: it is no outermost step that returned.
  std::optional<StepDigest> Ended(const ProcessFacts& facts, const Call& call,
                                  CallOutcome outcome);

  // Digests of the random generators at the first training forward, by name.
  const std::map<std::string, uint64_t>& generators() const {
    return generators_;
  }
  // Those of torch's, and of the others that have been drawn from: a script
  // that never calls numpy's need not seed it.
  std::map<std::string, uint64_t> UsedGenerators() const;

  void Fields(Archive& archive);

 private:
  void OnGenerator(const StateEvent& event);

  std::map<std::string, uint64_t> generators_;
  std::set<std::string> used_;
  uint64_t rows_ = 0;
  // The open step; call 0: none.
  uint32_t step_ring_ = 0;
  uint64_t step_call_ = 0;
  uint64_t weights_ = 0;
  uint64_t gradients_ = 0;
  std::set<uint32_t> with_weight_;
  std::set<uint32_t> with_gradient_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_STEP_DIGESTS_H_
