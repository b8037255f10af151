// What the reference runs say of each hypothesis: verdicts by run, and
// examples for the learner of preconditions.
//
// Examples that look the same to all facts are one, with a count; of different
// ones the kMaxExamples with the least hash are kept, so that what is kept
// depends on the runs alone.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INFERENCE_SCOREBOARD_H_
#define TRAINCHECK_INFERENCE_SCOREBOARD_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "inference/precondition_learner.h"
#include "invariants/relations/relation.h"

namespace traincheck {

class Score {
 public:
  static constexpr size_t kMaxExamples = 256;

  void Add(const std::string& run, const std::string& experiment,
           const Verdict& verdict);
  void AddExample(const std::string& experiment, const Example& example);

  // Windows decided.
  uint64_t passed() const { return passed_; }
  uint64_t violated() const { return violated_; }
  bool seen() const { return !runs_.empty(); }
  // Reached a verdict in every run that has its subject?
  bool DecidedEverywhere() const;
  // Could some window have refuted it?
  bool Refutable() const;
  // Experiments in which it was decided.
  const std::set<std::string>& experiments() const { return experiments_; }

  std::vector<WeightedExample> Examples() const;
  // Experiments with a window in which it did not hold.
  const std::set<std::string>& refuting() const { return refuting_; }

 private:
  uint64_t passed_ = 0;
  uint64_t violated_ = 0;
  uint64_t varied_ = 0;
  std::map<std::string, bool> runs_;  // -> decided
  std::set<std::string> experiments_;
  std::set<std::string> refuting_;
  // By hash of the content, then the content itself.
  std::map<std::pair<uint64_t, std::string>, WeightedExample> examples_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_SCOREBOARD_H_
