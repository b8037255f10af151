// Learns a set of invariants from the stored batches of one or several
// reference runs.
//
//   Inference inference(options);
//   inference.BeginRun({.run = "run-1", .program = "cnn"});
//   inference.Consume(process, batch); ... EndProcess(process, end);
//   inference.EndRun();
//   InferenceResult result = inference.Finish(progress);
//
// The result depends on the runs and the options alone: not on the order of the
// runs, nor on the number of threads. Time and memory grow with the number of
// records.
//
// Threads: one object, one thread at a time; Finish works on several.
#ifndef TRAINCHECK_INFERENCE_INFERENCE_H_
#define TRAINCHECK_INFERENCE_INFERENCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inference/options.h"
#include "invariants/rules/invariant.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

struct ReferenceRun {
  std::string run;
  std::string program;  // its experiment
  std::string torch_version;
};

struct InferenceResult {
  std::vector<Invariant> invariants;        // sorted by id
  std::map<std::string, uint32_t> dropped;  // reason -> hypotheses
};

class Inference {
 public:
  explicit Inference(const InferenceOptions& options);
  ~Inference();
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  void BeginRun(const ReferenceRun& run);
  // As Checker::SetAttempt, Checker::Consume and Checker::EndProcess.
  void SetAttempt(uint32_t process, uint32_t attempt);
  void Consume(uint32_t process, const StoredBatch& batch);
  void EndProcess(uint32_t process, ProcessEnd end);
  void EndRun();

  // `progress(fraction)` is called now and then with 0..1, by one thread at a
  // time. REQUIRES: every run that was begun was ended.
  InferenceResult Finish(const std::function<void(double)>& progress);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_INFERENCE_H_
