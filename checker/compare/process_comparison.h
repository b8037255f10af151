// Compares one process in both runs, step by step: batches of either go in,
// the first step that differs and what followed come out. Keeps the steps that
// the other run has not delivered yet; who asks Wants reads no further ahead
// than the steps of a batch.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COMPARE_PROCESS_COMPARISON_H_
#define TRAINCHECK_CHECKER_COMPARE_PROCESS_COMPARISON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "checker/compare/comparison_coverage.h"
#include "checker/compare/difference.h"
#include "checker/compare/names.h"
#include "checker/compare/note_comparison.h"
#include "checker/compare/process_versions.h"
#include "checker/compare/state_comparison.h"
#include "checker/compare/step_reader.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

enum class RunSide { kA, kB };

struct ProcessResult {
  // Of the first step that differs, the first one first, at most
  // ProcessComparison::kMaxKept; empty: nothing differs.
  std::vector<Difference> first;
  // How many there are in that step, by rung.
  std::map<StepRung, uint64_t> counts;
  // Parameters and buffers in that step and in the last one in which some were
  // compared.
  struct Variables {
    uint64_t step = 0;
    VariableCounts counts;
  };
  std::optional<Variables> variables_first;
  std::optional<Variables> variables_last;
  uint64_t steps_behind = 0;  // compared behind that step
  uint64_t steps_behind_different = 0;
  ComparisonCoverage coverage;
  uint64_t steps_a = 0;  // that closed
  uint64_t steps_b = 0;
  ProcessVersions versions_a;
  ProcessVersions versions_b;
};

class ProcessComparison {
 public:
  static constexpr size_t kMaxKept = 12;

  struct Options {
    // A worker of a loader: of its records the states alone are compared, as
    // of the step in which it was forked.
    bool is_worker = false;
  };

  explicit ProcessComparison(const Options& options);
  ProcessComparison(const ProcessComparison&) = delete;
  ProcessComparison& operator=(const ProcessComparison&) = delete;

  // Should batches of this run be read next?
  bool Wants(RunSide side) const;
  void Consume(RunSide side, const StoredBatch& batch);
  // No more batches of this run will come.
  void End(RunSide side, ProcessEnd end);

  // REQUIRES: both have ended.
  ProcessResult Finish();

 private:
  struct Side {
    Side(Names* names, const StepReader::Options& options)
        : reader(names, options) {}
    StepReader reader;
    std::optional<StepContent> next;  // not compared yet
    std::optional<ProcessEnd> end;
    ProcessVersions versions;
  };

  Side& Of(RunSide side) { return side == RunSide::kA ? a_ : b_; }
  // Compares what both have.
  void Advance();
  // A step that the other run has no records of.
  void Drop(RunSide side);
  void Compare();
  void ComparePair(const StepContent& a, const StepContent& b);
  // One run made fewer steps, or ended in another way.
  void CompareEnds();
  void Keep(const DifferenceList& differences, const StepContent& step);

  const Options options_;
  Names names_;
  Side a_;
  Side b_;
  ScalarBook scalars_;
  GeneratorBook generators_;
  ProcessResult result_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_PROCESS_COMPARISON_H_
