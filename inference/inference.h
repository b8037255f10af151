// Learns a set of invariants from the stored batches of one or several
// reference runs.
//
//   Inference inference(options);
//   inference.BeginRun("run-1", "cnn");
//   inference.Consume(process, batch); ... EndProcess(process, end);
//   inference.EndRun();
//   InferenceResult result = inference.Finish(progress);
//
// The result depends on the runs alone, not on their order.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INFERENCE_INFERENCE_H_
#define TRAINCHECK_INFERENCE_INFERENCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "invariants/invariant.h"
#include "invariants/stored_batch.h"

namespace traincheck {

struct InferenceOptions {
  std::vector<std::string> relations;  // names; empty: all
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

  void BeginRun(const std::string& run, const std::string& experiment);
  // As Checker::Consume and Checker::EndProcess.
  void Consume(uint32_t process, const StoredBatch& batch);
  void EndProcess(uint32_t process, ProcessEnd end);
  void EndRun();

  // `progress(fraction)` is called now and then with 0..1. REQUIRES: every
  // run that was begun was ended.
  InferenceResult Finish(const std::function<void(double)>& progress);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_INFERENCE_H_
