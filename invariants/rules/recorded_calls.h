// Would a call of a function have been recorded?
#ifndef TRAINCHECK_INVARIANTS_RULES_RECORDED_CALLS_H_
#define TRAINCHECK_INVARIANTS_RULES_RECORDED_CALLS_H_

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/function_match.h"

namespace traincheck {

// Of one process. Each rule asks at each step, so which functions it speaks of
// is found once: thousands of rules times hundreds of functions would be most
// of what a check costs. Made from the definitions, and not saved.
//
// Threads: one object, one thread at a time.
class RecordedCalls {
 public:
  // Is it a call that is not recorded in a step that was not sampled? True
  // where nothing says that it is of the skeleton.
  bool IsBeyondSkeleton(const ProcessFacts& facts, const FunctionMatch& event);
  // Has the process recorded such calls since then, in the steps that it
  // recorded in full? What no plan names may have happened unseen.
  bool IsRecorded(const ProcessFacts& facts, const FunctionMatch& event,
                  const RecordedSince& since);
  // Why such calls may have been missed in a window that began then; "": each
  // of them was recorded.
  std::string WhyMissed(const ProcessFacts& facts, const FunctionMatch& event,
                        const RecordedSince& since, uint64_t gaps);

 private:
  struct Matched {
    uint32_t id = 0;
    bool of_skeleton = false;
  };
  using Functions = std::vector<Matched>;

  // The functions that are known by now.
  const Functions& Matching(const ProcessFacts& facts,
                            const FunctionMatch& event);

  size_t known_ = 0;  // functions that were defined
  std::unordered_map<std::string, Functions> by_name_;
  std::map<FunctionMatch, Functions> others_;  // by role or category
};

// Why it is unknown whether such a call happened.
std::string NotRecordedWords(const ProcessFacts& facts,
                             const FunctionMatch& event);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RECORDED_CALLS_H_
