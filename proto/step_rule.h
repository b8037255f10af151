// The step rule (docs/formats.md "Clocks"): when does a training step close?
// One definition for the agent, which chooses what to record by it, and for
// invariants/trace/clock, which derives the steps that users see.
//
// A step closes at the first batch fetch, training root forward or gradient
// clear after every optimizer that stepped in the previous step has stepped
// again, or when one of them steps a second time. A step that a GradScaler
// skipped counts like one that was made. The first step closes at such an
// event once any optimizer has stepped; there, a forward counts only after a
// backward. The end of the training loader's iterator, destroy_process_group
// and a clean exit close an open step. Micro-batches stay inside; evaluation
// (gradients disabled) closes nothing.
//
// As long as no optimizer steps, a step closes at such an event after a
// backward, and, where there is no backward either, at the first fetch after a
// training forward: but not while an optimizer is there whose first step may
// only be waiting for more micro-batches. That wait is over when gradients are
// cleared unused or the training loader's iterator ends.
//
// From the first UserStep on only UserStep, destroy_process_group and a clean
// exit close a step.
//
// Threads: externally synchronised. Steps count from 0.
#ifndef TRAINCHECK_PROTO_STEP_RULE_H_
#define TRAINCHECK_PROTO_STEP_RULE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace traincheck {

// The loop of one thread.
class StepRule {
 public:
  // Each returns true when the event closes the open step; the event itself
  // then belongs to the next one.

  // An optimizer's outermost step begins, or a scaler skips it.
  bool OptimizerStep(uint32_t optimizer) {
    ever_stepped_ = true;
    const bool again = Contains(stepped_, optimizer);
    const bool closes = again && !explicit_ && Close();
    if (!again || closes) stepped_.push_back(optimizer);
    return closes;
  }

  // An optimizer was constructed in this process.
  void OptimizerMade() { waits_ = true; }

  // loader: any number but 0.
  bool BatchFetched(uint32_t loader) {
    fetched_from_ = loader;
    return CloseIfComplete() || (BatchDone() && Close());
  }

  bool GradClear() {
    if (backward_ && !ever_stepped_) waits_ = false;
    return CloseIfComplete();
  }

  // A root module call begins in training, outside a backward.
  bool TrainingForward() {
    const bool counts = closed_steps_ > 0 || seen_backward_;
    const bool closes = counts && CloseIfComplete();
    forward_ = true;
    return closes;
  }

  // An outermost backward begins.
  void Backward() {
    seen_backward_ = backward_ = true;
    if (fetched_from_ != 0) training_loader_ = fetched_from_;
  }

  // An iterator of this loader ended.
  bool IteratorEnd(uint32_t loader) {
    if (explicit_) return false;
    if (BatchDone()) return loader == fetched_from_ && Close();
    if (loader != training_loader_) return false;
    if (!ever_stepped_) waits_ = false;
    return End();
  }

  // The user says that a step ends here. The first call, before anything has
  // happened, only takes over.
  bool UserStep() {
    const bool ends = explicit_ || !stepped_.empty() || backward_ || forward_;
    explicit_ = true;
    return ends && Close();
  }

  // Process group destroyed, or exit.
  bool End() { return (!stepped_.empty() || BackwardDone()) && Close(); }

  // The event that comes next is known to close the step.
  bool CloseAhead() { return Close(); }

  // Steps that this thread closed.
  uint64_t closed() const { return closed_steps_; }
  // The loader whose fetch a backward followed; 0: none.
  uint32_t training_loader() const { return training_loader_; }

  // Saves or restores, for whoever has to go on from here.
  template <typename Archive>
  void Fields(Archive& archive) {
    archive(previous_, stepped_, closed_steps_, fetched_from_, training_loader_,
            seen_backward_, ever_stepped_, waits_, explicit_, backward_,
            forward_);
  }

 private:
  static bool Contains(const std::vector<uint32_t>& in, uint32_t optimizer) {
    return std::find(in.begin(), in.end(), optimizer) != in.end();
  }

  // What stands for an optimizer's step where there is none.
  bool BackwardDone() const { return !ever_stepped_ && !waits_ && backward_; }
  bool BatchDone() const {
    return !ever_stepped_ && !waits_ && !explicit_ && !seen_backward_ &&
           forward_;
  }

  bool CloseIfComplete() {
    if (explicit_) return false;
    if (stepped_.empty()) return BackwardDone() && Close();
    const bool all_again =
        std::all_of(previous_.begin(), previous_.end(),
                    [this](uint32_t o) { return Contains(stepped_, o); });
    return all_again && Close();
  }

  bool Close() {
    // A step that the user closed may have none.
    if (!stepped_.empty()) previous_.swap(stepped_);
    stepped_.clear();
    backward_ = forward_ = false;
    ++closed_steps_;
    return true;
  }

  std::vector<uint32_t> previous_;  // stepped in the last step that had any
  std::vector<uint32_t> stepped_;   // in the open one
  uint64_t closed_steps_ = 0;
  uint32_t fetched_from_ = 0;     // loader of the last fetch
  uint32_t training_loader_ = 0;  // loader whose fetch a backward followed
  bool seen_backward_ = false;
  bool ever_stepped_ = false;
  bool waits_ = false;     // for the first step of an optimizer
  bool explicit_ = false;  // the user says where steps end
  bool backward_ = false;  // in the open step
  bool forward_ = false;
};

// The loops of one process. Threads that train have a loop each (hogwild), so
// that their steps do not depend on how the threads interleave; the process's
// step is the number of all steps closed so far.
class StepRules {
 public:
  // Runs `event` on the loop of the thread that has this ring. True: it closed
  // that loop's step.
  template <typename Event>
  bool Tell(uint32_t ring, const Event& event) {
    const bool closes = event(Of(ring));
    closed_steps_ += closes;
    return closes;
  }

  // In any thread, for all.
  void OptimizerMade() {
    optimizer_made_ = true;
    for (auto& [ring, rule] : rules_) rule.OptimizerMade();
  }

  // A clean exit: ends all loops. Returns how many steps that closes.
  uint64_t EndAll() {
    const uint64_t before = closed_steps_;
    for (auto& [ring, rule] : rules_) closed_steps_ += rule.End();
    return closed_steps_ - before;
  }

  // Number of the open step.
  uint64_t step() const { return closed_steps_; }
  const std::map<uint32_t, StepRule>& rules() const { return rules_; }

  template <typename Archive>
  void Fields(Archive& archive) {
    archive(rules_, closed_steps_, optimizer_made_);
  }

 private:
  StepRule& Of(uint32_t ring) {
    const auto [found, is_new] = rules_.try_emplace(ring);
    if (is_new && optimizer_made_) found->second.OptimizerMade();
    return found->second;
  }

  std::map<uint32_t, StepRule> rules_;  // by ring
  uint64_t closed_steps_ = 0;
  bool optimizer_made_ = false;
};

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_STEP_RULE_H_
