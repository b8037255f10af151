// Puts together what the processes of two runs differ in: the first difference
// of all ranks, by step and then by its place in the step.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COMPARE_RUN_COMPARISON_H_
#define TRAINCHECK_CHECKER_COMPARE_RUN_COMPARISON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checker/compare/comparison_coverage.h"
#include "checker/compare/difference.h"
#include "checker/compare/process_comparison.h"

namespace traincheck {

// Of a rank that both runs have.
struct ComparedRank {
  int32_t rank = 0;
  uint64_t steps_a = 0;
  uint64_t steps_b = 0;
  std::optional<uint64_t> first_step;  // that differs
};

struct ComparisonResult {
  // Known before the first step: the runs are not of one kind.
  std::vector<Difference> before;
  // The first difference in what the runs did, then others of that step, at
  // most ProcessComparison::kMaxKept in all; empty: none.
  std::vector<Difference> first;
  // How many there are in that step, by rung, over its ranks.
  std::map<StepRung, uint64_t> counts;
  // What followed on the rank that differs first.
  std::optional<ProcessResult::Variables> variables_first;
  std::optional<ProcessResult::Variables> variables_last;
  uint64_t steps_behind = 0;
  uint64_t steps_behind_different = 0;
  std::vector<ComparedRank> ranks;
  ComparisonCoverage coverage;

  // Was anything compared at all?
  bool compared() const {
    return coverage.whole_steps + coverage.skeleton_steps > 0 ||
           coverage.calls > 0;
  }
  bool different() const { return !before.empty() || !first.empty(); }
};

class RunComparison {
 public:
  // Ranks of each run; 0: not known.
  RunComparison(int32_t world_a, int32_t world_b);

  void AddRank(int32_t rank, ProcessResult result);
  // A worker of a loader of this rank.
  void AddWorker(int32_t rank, uint64_t worker, ProcessResult result);
  // One run has no process that the other has ("rank 3", "worker 1 of rank 0").
  void AddLone(RunSide only_in, const std::string& kind,
               const std::string& process);

  ComparisonResult Finish();

 private:
  struct Part {
    int32_t rank = 0;
    ProcessResult result;
  };

  void CompareVersions(const ProcessVersions& a, const ProcessVersions& b);
  void Merge(const Part& part);

  std::vector<Part> parts_;
  ComparisonResult result_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_RUN_COMPARISON_H_
