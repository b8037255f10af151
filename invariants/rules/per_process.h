// An evaluator of rules whose windows lie within one process: each process has
// a part of its own, and nothing is shared but the rules.
//
// Threads: as relation.h.
#ifndef TRAINCHECK_INVARIANTS_RULES_PER_PROCESS_H_
#define TRAINCHECK_INVARIANTS_RULES_PER_PROCESS_H_

#include <memory>
#include <utility>
#include <vector>

#include "invariants/rules/relation.h"

namespace traincheck {

// What the parts of an evaluator have in common.
template <typename RuleT>
struct JudgedRules {
  std::vector<RuleT> rules;
  RuleSink* sink = nullptr;
};

// Part is a ProcessObserver made of a const JudgedRules<RuleT>*.
template <typename RuleT, typename Part>
class PerProcess : public RunObserver {
 public:
  PerProcess(std::vector<RuleT> rules, RuleSink* sink)
      : judged_{std::move(rules), sink} {}

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    return std::make_unique<Part>(&judged_);
  }
  void EndRun() override {}

 private:
  const JudgedRules<RuleT> judged_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_PER_PROCESS_H_
