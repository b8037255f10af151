// What is learned, and how sure it must be.
//
// Threads: plain values.
#ifndef TRAINCHECK_INFERENCE_OPTIONS_H_
#define TRAINCHECK_INFERENCE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace traincheck {

// Shell patterns (*, ?, [...]) over whole names.
struct NamePatterns {
  std::vector<std::string> include;  // empty: all
  std::vector<std::string> exclude;
};

struct InferenceOptions {
  std::vector<std::string> relations;  // names; empty: all
  // A rule must name no function that is excluded and, where it names some,
  // one that is included; likewise of variables.
  NamePatterns functions;
  NamePatterns variables;
  // Programs of different kind in which a general rule was decided. 2 is the
  // least that is no single program's habit; docs/evaluation.md measures 1 to
  // 4.
  uint32_t min_programs = 2;
  // A rule is shipped only if the chance that it says nothing is below.
  double max_chance = 0.01;
  // Hypotheses of one relation that are looked at, and rules that are shipped,
  // at most; the rest is dropped and counted.
  uint32_t max_hypotheses = 100000;
  uint32_t max_invariants = 20000;
  uint32_t threads = 0;  // 0: as many as the machine has processors
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_OPTIONS_H_
