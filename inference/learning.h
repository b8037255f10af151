// The way from reference runs to rules: hypotheses, verdicts on them by the
// relations' own check, preconditions for those that some window refuted, a
// second look at these, and what is left without what others already say.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_INFERENCE_LEARNING_H_
#define TRAINCHECK_INFERENCE_LEARNING_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inference/inference.h"
#include "inference/recorded_run.h"
#include "inference/scoreboard.h"

namespace traincheck {

class Learning {
 public:
  // `runs` sorted by run id; must outlive this object.
  Learning(const std::vector<const RecordedRun*>& runs,
           const InferenceOptions& options,
           const std::function<void(double)>& progress);

  InferenceResult Learn();

 private:
  struct Candidate {
    const Relation* relation = nullptr;
    Invariant invariant;
    Precondition precondition;
    std::vector<std::string> broader;  // parameters in canonical form
    Score score;
    const char* dropped = nullptr;  // why; null: still in
  };

  void Generate();
  // Judges the candidates that are in and wanted on every run.
  void Judge(const std::function<bool(const Candidate&)>& wanted);
  void JudgeRun(const RecordedRun& run,
                const std::function<bool(const Candidate&)>& wanted);
  void Weigh(Candidate* candidate);
  void WeighAgain(Candidate* candidate);
  void CheckSupport(Candidate* candidate);
  void Suppress();
  InferenceResult Result();
  void Progress();

  const std::vector<const RecordedRun*>& runs_;
  const InferenceOptions& options_;
  const std::function<void(double)>& progress_;
  size_t passes_done_ = 0;
  // By relation and canonical parameters.
  std::map<std::pair<std::string, std::string>, Candidate> candidates_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_LEARNING_H_
