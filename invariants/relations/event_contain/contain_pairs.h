// Hypotheses of EventContain on calls in calls, of one process:
//
// - a function of the user's calls another one directly, or the module that it
//   wraps (what torch's own functions call is no rule of a training);
// - a module's call gives a function an argument that is the module's training
//   flag, where both values were seen;
// - during a step of an optimizer or a backward, what belongs elsewhere never
//   happens (an initialiser, a state that is loaded), where it does elsewhere
//   in some step after the first: what had no occasion is no rule.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_PAIRS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_PAIRS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "invariants/relations/event_contain/contain_spec.h"
#include "invariants/rules/hypothesis_set.h"
#include "invariants/rules/step_windows.h"

namespace traincheck {

class ContainPairs {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call);
  void OnCallEnd(const Call& call);
  void Collect(const ProcessDefinitions& definitions, HypothesisSet* out) const;

 private:
  // A call and the call directly inside it, by function.
  using Pair = std::pair<uint32_t, uint32_t>;
  // How an argument of the inner call follows the flag of the module.
  struct Follows {
    bool always = true;
    bool on = false;  // seen
    bool off = false;
  };

  void SeePair(const ProcessFacts& facts, const Call& parent,
               const Call& child);
  void SeeFlag(const ProcessFacts& facts, const Call& parent,
               const Call& child);
  void SeeStranger(const Call& call);
  void AdvanceStep(const ProcessFacts& facts);
  void CollectPair(const ProcessDefinitions& definitions, const Pair& pair,
                   HypothesisSet* out) const;
  void CollectNever(HypothesisSet* out) const;

  std::map<uint32_t, std::vector<Call>> open_;  // by ring
  std::set<Pair> pairs_;
  std::set<Pair> wrapped_;
  std::map<Pair, std::map<std::string, Follows>> flags_;  // by argument
  // Of "never": windows and events of the open step, pairs that a step had both
  // of, and pairs that did happen.
  StepWindows steps_;
  std::set<FunctionMatch> windows_;
  std::set<FunctionMatch> strangers_;
  std::set<std::pair<FunctionMatch, FunctionMatch>> occasions_;
  std::set<std::pair<FunctionMatch, FunctionMatch>> happened_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_PAIRS_H_
