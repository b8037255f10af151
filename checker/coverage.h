// Which rules reached a verdict, and why the others did not.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COVERAGE_H_
#define TRAINCHECK_CHECKER_COVERAGE_H_

#include <string>
#include <vector>

#include "checker/checker.h"
#include "invariants/relations/relation.h"

namespace traincheck {

class Coverage {
 public:
  // Returns the number under which the rule is counted.
  size_t AddRule() {
    rules_.emplace_back();
    return rules_.size() - 1;
  }

  void Add(size_t rule, const Verdict& verdict) {
    State& state = rules_[rule];
    if (verdict.outcome == Outcome::kUnknown) {
      // The least of the reasons: independent of the order in which they come.
      if (state.reason.empty() || verdict.reason < state.reason) {
        state.reason = verdict.reason;
      }
      return;
    }
    state.decided = true;
    state.violated |= verdict.outcome == Outcome::kViolated;
  }

  // Fills in all but not_applied.
  void Summarize(CheckSummary* summary) const {
    for (const State& state : rules_) {
      ++summary->total;
      summary->decided += state.decided;
      summary->violated += state.violated;
      if (state.decided) continue;
      ++summary->unknown[state.reason.empty()
                             ? "what the rule is about was not seen"
                             : state.reason];
    }
  }

 private:
  struct State {
    bool decided = false;
    bool violated = false;
    std::string reason;
  };
  std::vector<State> rules_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COVERAGE_H_
