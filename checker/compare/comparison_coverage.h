// What was compared, and what could not be: what was not seen in both runs is
// unknown, never equal.
//
// Threads: plain values.
#ifndef TRAINCHECK_CHECKER_COMPARE_COMPARISON_COVERAGE_H_
#define TRAINCHECK_CHECKER_COMPARE_COMPARISON_COVERAGE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace traincheck {

// Things of one kind that were not compared for one reason.
struct NotCompared {
  static constexpr size_t kMaxExamples = 4;

  uint64_t count = 0;
  std::set<std::string> examples;  // names, at most kMaxExamples
};

struct ComparisonCoverage {
  // Steps of a process that both runs recorded in full; those of which some run
  // recorded the skeleton alone.
  uint64_t whole_steps = 0;
  uint64_t skeleton_steps = 0;
  uint64_t calls = 0;
  uint64_t arguments = 0;
  uint64_t results = 0;
  uint64_t weights = 0;  // digests of parameters and buffers
  uint64_t gradients = 0;
  uint64_t optimizer_states = 0;
  uint64_t generators = 0;
  uint64_t batches = 0;   // digests of the indices or inputs of batches
  uint64_t settings = 0;  // learning rates, shapes, entries of checkpoints, ...

  // What it is ("calls", "gradients") and why ("recorded in run A only").
  std::map<std::pair<std::string, std::string>, NotCompared> not_compared;

  void Miss(const std::string& what, const std::string& why, uint64_t count,
            const std::string& example) {
    NotCompared& missed = not_compared[{what, why}];
    missed.count += count;
    if (missed.examples.size() < NotCompared::kMaxExamples &&
        !example.empty()) {
      missed.examples.insert(example);
    }
  }

  void Add(const ComparisonCoverage& other) {
    whole_steps += other.whole_steps;
    skeleton_steps += other.skeleton_steps;
    calls += other.calls;
    arguments += other.arguments;
    results += other.results;
    weights += other.weights;
    gradients += other.gradients;
    optimizer_states += other.optimizer_states;
    generators += other.generators;
    batches += other.batches;
    settings += other.settings;
    for (const auto& [key, missed] : other.not_compared) {
      NotCompared& mine = not_compared[key];
      mine.count += missed.count;
      for (const std::string& example : missed.examples) {
        if (mine.examples.size() < NotCompared::kMaxExamples) {
          mine.examples.insert(example);
        }
      }
    }
  }
};

inline constexpr char kInAOnly[] = "recorded in run A only";
inline constexpr char kInBOnly[] = "recorded in run B only";

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_COMPARISON_COVERAGE_H_
