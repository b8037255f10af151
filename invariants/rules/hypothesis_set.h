// Hypotheses, each once, and the generator that collects them from what each
// process of a run has shown.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_HYPOTHESIS_SET_H_
#define TRAINCHECK_INVARIANTS_RULES_HYPOTHESIS_SET_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/relation.h"

namespace traincheck {

class HypothesisSet {
 public:
  // The first of equal parameters counts. What is broader than itself is left
  // out.
  void Add(Hypothesis hypothesis) {
    std::erase_if(hypothesis.broader, [&](const Hypothesis::Broader& other) {
      return other.parameters == hypothesis.parameters;
    });
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

// Seen is a ProcessObserver with
//   void Collect(const ProcessDefinitions& definitions,
//                HypothesisSet* out) const;
// which is called once, at the end of the run.
template <typename Seen>
class SeenGenerator : public Generator {
 public:
  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    auto seen = std::make_unique<Seen>();
    processes_.emplace_back(&facts, seen.get());
    return seen;
  }
  void EndRun() override {
    for (const auto& [facts, seen] : processes_) {
      seen->Collect(facts->definitions(), &hypotheses_);
    }
  }
  std::vector<Hypothesis> Take() override { return hypotheses_.Take(); }

 private:
  std::vector<std::pair<const ProcessFacts*, const Seen*>> processes_;
  HypothesisSet hypotheses_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_HYPOTHESIS_SET_H_
