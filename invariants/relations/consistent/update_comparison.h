// Compares what the ranks' optimizers made of parameters that were equal before
// and got equal gradients: see consistent_updates.h.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_UPDATE_COMPARISON_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_UPDATE_COMPARISON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariants/rules/joined_ranks.h"
#include "invariants/rules/text_table.h"

namespace traincheck {

// One parameter of one rank in one step.
struct Update {
  std::string name;
  // Of all that makes the result, where it is equal on the ranks: data before,
  // gradient, learning rate.
  uint64_t given = 0;
  uint64_t after = 0;
  std::optional<uint64_t> grad_at_step;  // when the step began
  Writer writer;                         // of what is there after
};

// Those of one rank.
struct UpdateWindow {
  std::vector<int32_t> ranks;  // that are compared, sorted
  uint32_t ordinal = 0;        // of the optimizer
  uint64_t index = 0;          // of its step; grows
  std::optional<int64_t> step;
  std::vector<Update> updates;
  std::string unknown;  // why something is missing; "": nothing is
};

class UpdateComparison : public JoinedRanks {
 public:
  explicit UpdateComparison(RuleSink* sink) : sink_(sink) {}

  // REQUIRES: the process has a rank; indices of one rank, rule and optimizer
  // grow.
  void Add(const ProcessFacts& facts, size_t rule, UpdateWindow window);

  void Fields(Archive& archive);

  // Of which something is known: for the test that those of attempts that have
  // ended are let go.
  size_t units() const { return units_.size(); }

 private:
  // What is known of the windows of a unit.
  struct Unit {
    bool evidence = false;  // of replication, in some window
    uint64_t next = 0;      // index after the newest
    uint64_t waiting = 0;   // windows that are not judged
    bool given_up = false;

    void Fields(Archive& archive);
  };

  void OnJudged(const ReplicaUnit& unit, const JudgedWindow& window) override;
  void OnOver(const ReplicaUnit& unit) override { units_.erase(unit); }
  Finding Describe(const ReplicaUnit& unit, const JudgedWindow& window,
                   const std::vector<uint32_t>& differ, size_t judged) const;

  RuleSink* const sink_;
  TextTable names_;
  TextTable writers_;
  std::map<ReplicaUnit, Unit> units_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_UPDATE_COMPARISON_H_
