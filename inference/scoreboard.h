// What the reference runs say of a hypothesis: verdicts, units, and examples
// for the learner of preconditions.
//
// A *unit* is what could break a rule for itself: an optimizer, a module, a
// replica group of a program. The ranks that run one program are one unit: what
// they do is no more evidence than what one of them does.
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
#include <tuple>
#include <utility>
#include <vector>

#include "inference/precondition_learner.h"
#include "invariants/rules/relation.h"

namespace traincheck {

// Different examples by hash of the content, then the content itself.
class ExampleTable {
 public:
  static constexpr size_t kMaxExamples = 256;

  void Add(const Example& example);
  void Merge(const ExampleTable& other);
  std::vector<WeightedExample> Take() const;

 private:
  using Key = std::pair<uint64_t, std::string>;
  void Add(const Key& key, const WeightedExample& example);

  std::map<Key, WeightedExample> examples_;
};

// A window that showed the rule.
struct Witness {
  uint64_t unit = 0;
  std::optional<int64_t> step;  // nullopt: not known
  // Known steps come first.
  auto Key() const { return std::tuple(!step, step, unit); }
  bool operator<(const Witness& other) const { return Key() < other.Key(); }
};

// One run about one hypothesis.
struct RunScore {
  void Add(const Verdict& verdict);

  bool seen = false;     // some window, decided or not
  bool decided = false;  // some window passed or was violated
  uint64_t passed = 0;   // windows
  uint64_t violated = 0;
  uint64_t varied = 0;  // trials of those that passed and varied
  std::map<uint64_t, uint64_t> varied_of_process;
  std::set<uint64_t> contexts;  // of those that have one
  std::set<uint64_t> units;
  Witness first;  // that passed; REQUIRES: passed > 0
  ExampleTable examples;
};

// All runs of one program.
struct ProgramScore {
  uint64_t passed = 0;
  uint64_t violated = 0;
  std::set<uint64_t> units;
  ExampleTable examples;
};

// All runs.
class Score {
 public:
  void Add(const std::string& run, const std::string& program,
           const RunScore& score);

  bool seen() const { return !decided_.empty(); }
  // Reached a verdict in every run that has its subject?
  bool DecidedEverywhere() const;
  // Windows.
  uint64_t passed() const { return passed_; }
  uint64_t violated() const { return violated_; }
  // Trials.
  uint64_t varied() const { return varied_ + contexts_.size(); }
  uint64_t units() const;
  // Programs in which it was decided.
  std::vector<std::string> Programs() const;
  // Runs in which it was decided, each with a window that showed it.
  const std::map<std::string, Witness>& witnesses() const { return witnesses_; }
  // Of all programs, or of all but one.
  std::vector<WeightedExample> Examples(const std::string& without = "") const;
  // Of one program.
  std::vector<WeightedExample> ExamplesOf(const std::string& program) const;

 private:
  uint64_t passed_ = 0;
  uint64_t violated_ = 0;
  uint64_t varied_ = 0;
  std::set<uint64_t> contexts_;
  std::map<std::string, bool> decided_;  // by run that has its subject
  std::map<std::string, Witness> witnesses_;
  std::map<std::string, ProgramScore> programs_;
};

// The chance that a rule which says nothing held in so many trials, windows in
// which something relevant varied: 2^-trials. The null hypothesis is Daikon's
// (Ernst et al., Dynamically Discovering Likely Program Invariants, TSE 2001,
// "statistical justification": values are uniformly distributed), for a
// rule that in each trial either holds or does not.
double ChanceOf(uint64_t trials);

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_SCOREBOARD_H_
