// The step rule (docs/formats.md "Clocks"): when does a training step close?
// One definition for the agent, which chooses what to record by it, and for
// invariants/facts/clock, which derives the steps that users see.
//
// A step closes at the first batch fetch, training root forward or gradient
// clear after every optimizer that stepped in the previous step has stepped
// again, or when one of them steps a second time. The first step closes at
// such an event once any optimizer has stepped; there, a forward counts only
// for a model that has already been through a backward. The end of the
// training loader's iterator, destroy_process_group and a clean exit close an
// open step. Micro-batches stay inside; evaluation (gradients disabled)
// closes nothing.
//
// Without any optimizer step there is no step here; such loops are counted by
// whoever displays them.
//
// Threads: externally synchronised. Steps count from 0.
#ifndef TRAINCHECK_PROTO_STEP_RULE_H_
#define TRAINCHECK_PROTO_STEP_RULE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace traincheck {

class StepRule {
 public:
  // Each returns true when the event closes the open step; the event itself
  // then belongs to the next one.

  // An outermost optimizer step begins.
  bool OptimizerStep(uint32_t optimizer) {
    bool closes = false;
    if (Contains(stepped_, optimizer)) closes = Close();
    stepped_.push_back(optimizer);
    return closes;
  }

  bool BatchFetched() { return CloseIfComplete(); }
  bool GradClear() { return CloseIfComplete(); }

  // A root module call begins with gradients enabled, outside a backward.
  bool TrainingForward() {
    if (closed_steps_ == 0 && !seen_backward_) return false;
    return CloseIfComplete();
  }

  void Backward() { seen_backward_ = true; }

  // Iterator of the training loader ended, process group destroyed or exit.
  bool End() { return !stepped_.empty() && Close(); }

  // Number of the open step.
  uint64_t step() const { return closed_steps_; }
  // Has an optimizer stepped in the open step?
  bool stepped() const { return !stepped_.empty(); }

  // Saves or restores, for whoever has to go on from here.
  template <typename Archive>
  void Fields(Archive& archive) {
    archive(previous_, stepped_, closed_steps_, seen_backward_);
  }

 private:
  static bool Contains(const std::vector<uint32_t>& in, uint32_t optimizer) {
    return std::find(in.begin(), in.end(), optimizer) != in.end();
  }

  bool CloseIfComplete() {
    if (stepped_.empty()) return false;
    const bool all_again =
        std::all_of(previous_.begin(), previous_.end(),
                    [this](uint32_t o) { return Contains(stepped_, o); });
    return all_again && Close();
  }

  bool Close() {
    previous_.swap(stepped_);
    stepped_.clear();
    ++closed_steps_;
    return true;
  }

  std::vector<uint32_t> previous_;  // stepped in the last closed step
  std::vector<uint32_t> stepped_;   // in the open one
  uint64_t closed_steps_ = 0;
  bool seen_backward_ = false;
};

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_STEP_RULE_H_
