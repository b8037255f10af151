// The way from reference runs to rules: hypotheses, verdicts on them by the
// relations' own check, preconditions for those that some window refuted, a
// second look at these, and what is left without what others already say.
//
// Each run is read three times at most, whatever the number of hypotheses.
// Runs, and relations where there are fewer runs than threads, are read side by
// side; what comes of them is put together in the order of the runs.
//
// Threads: one object, one thread; Learn works on several.
#ifndef TRAINCHECK_INFERENCE_LEARNING_H_
#define TRAINCHECK_INFERENCE_LEARNING_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "inference/candidate.h"
#include "inference/inference.h"
#include "inference/program_kinds.h"
#include "inference/recorded_run.h"

namespace traincheck {

class Learning {
 public:
  // `runs` sorted by run id; must outlive this object.
  Learning(const std::vector<const RecordedRun*>& runs,
           const InferenceOptions& options,
           const std::function<void(double)>& progress);

  InferenceResult Learn();

 private:
  // What one thread reads at a time.
  struct Part {
    const RecordedRun* run = nullptr;
    std::vector<const Relation*> relations;
    bool first = false;  // of its run
  };
  using Wanted = std::function<bool(const Candidate&)>;

  size_t ThreadCount() const;
  void Divide();
  // Calls work(part number) for each part.
  void ForEachPart(const std::function<void(size_t)>& work);
  void Progress();

  void Generate();
  void AddHypothesis(const Relation& relation, const std::string& program,
                     Hypothesis hypothesis);
  // Judges the candidates that are in and wanted on every run.
  void Judge(const Wanted& wanted);
  std::vector<std::pair<Candidate*, RunScore>> JudgePart(const Part& part,
                                                         const Wanted& wanted);
  InferenceResult Result();

  const std::vector<const RecordedRun*>& runs_;
  const InferenceOptions& options_;
  const std::function<void(double)>& progress_;
  const size_t threads_;
  std::vector<Part> parts_;
  ProgramKinds kinds_;
  std::map<std::string, uint32_t> hypotheses_;  // by relation
  Candidates candidates_;
  absl::Mutex telling_;
  size_t parts_done_ ABSL_GUARDED_BY(telling_) = 0;  // of all passes
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_LEARNING_H_
