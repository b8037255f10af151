// Hypotheses, each once.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_HYPOTHESIS_SET_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_HYPOTHESIS_SET_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "invariants/relations/relation.h"

namespace traincheck {

class HypothesisSet {
 public:
  // The first of equal parameters counts. What is broader than itself is left
  // out.
  void Add(Hypothesis hypothesis) {
    std::erase(hypothesis.broader, hypothesis.parameters);
    std::string key = hypothesis.parameters.dump();
    hypotheses_.emplace(std::move(key), std::move(hypothesis));
  }

  // In the order of their parameters.
  std::vector<Hypothesis> Take() {
    std::vector<Hypothesis> result;
    for (auto& [key, hypothesis] : hypotheses_) {
      result.push_back(std::move(hypothesis));
    }
    hypotheses_.clear();
    return result;
  }

 private:
  std::map<std::string, Hypothesis> hypotheses_;  // by canonical parameters
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_HYPOTHESIS_SET_H_
