// Facts "opt.trains_as_before": do the models of an optimizer train in training
// mode, if they did so before? And "call.evaluates_training": is a model that
// has trained called without gradients, and still in training mode? A generator
// is, on purpose, in each round of adversaries: it makes samples for a step of
// another optimizer.
//
// Inputs: outermost calls of modules with gradients and their training flags,
// ends of steps. Of a wrapper the mode of what it wraps counts: Lightning puts
// back that of its module alone after an evaluation. A span with a call in
// training mode is one of training, whatever was evaluated in it. A model gets
// its number within its first call, which is recorded without it: if the first
// step of an optimizer follows such calls, all in training mode, then its model
// without any other call had one of them. Unknown where records are missing
// since the last step.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_TRAINING_MODES_H_
#define TRAINCHECK_INVARIANTS_FACTS_TRAINING_MODES_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class TrainingModes final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override {
    if (!HasCategory(call, CallCategory::kForward)) return;
    if (call.Is(kInsideBackward)) return;
    if (!call.Is(kGradEnabled)) return CalledWithoutGradients(call);
    const auto wrapper = wrappers_.find(call.object);
    if (wrapper != wrappers_.end()) {
      Called(wrapper->second, call);
      Called(call.object, call);
      wrappers_.erase(wrapper);
    } else if (IsRootForward(call)) {
      const ObjectInfo* info = inputs().definitions.Object(call.object);
      if (info && info->wrapped != 0) {
        wrappers_[info->wrapped] = call.object;
      } else {
        Called(call.object, call);
      }
    }
  }
  void AfterCall(const Call& call, CallOutcome outcome) override {
    if (!IsOptimizerStep(call)) return;
    const Optimizer* optimizer = inputs().ownership.Find(call.object);
    if (!optimizer) return;
    const Model unnamed = std::exchange(models_[kUnnamed], {});
    if (unnamed.training && !unnamed.evaluating && !unnamed.unsure) {
      FirstCallTrained(*optimizer);
    }
    ++steps_;
    for (uint32_t module : optimizer->modules) {
      const auto found = models_.find(module);
      if (found != models_.end()) found->second.Stepped(steps_);
    }
  }
  void OnGap() override {
    for (auto& [object, model] : models_) model.unsure = true;
  }

  // Has it trained in training mode, and is what calls it without gradients no
  // other optimizer's training, for certain?
  bool MayBeEvaluated(uint32_t module) const {
    const auto found = models_.find(module);
    if (found == models_.end() || !found->second.trained) return false;
    const Model& model = found->second;
    if (!inputs().ownership.HasSeveralOptimizers()) return true;
    return model.steps > 1 && !(model.alternates && model.asked_before);
  }
  // Was one of its models called since the last step that has trained in
  // training mode before?
  bool Retrains(const Optimizer& optimizer) const {
    return Count(optimizer, [](const Model& model) {
             return model.trained && (model.training || model.evaluating);
           }) > 0;
  }
  // REQUIRES: Retrains.
  Tri AsBefore(const Optimizer& optimizer) const {
    const auto unsure = [](const Model& model) {
      return model.trained && model.unsure;
    };
    const auto otherwise = [](const Model& model) {
      return model.trained && model.evaluating && !model.training;
    };
    if (Count(optimizer, unsure) > 0) return Tri::kUnknown;
    return ToTri(Count(optimizer, otherwise) == 0);
  }

  void Fields(Archive& archive) override {
    archive(models_, wrappers_, steps_);
  }

 private:
  struct Model {
    bool trained = false;       // a step followed a call in training mode
    bool training = false;      // called so since the last step
    bool evaluating = false;    // called in evaluation mode since then
    bool unsure = false;        // other calls may be missing
    bool asked = false;         // called without gradients, in training mode
    bool asked_before = false;  // so in the span before the last step
    bool alternates = false;    // another optimizer has stepped in that span
    uint32_t steps = 0;         // of its own
    uint64_t last_step = 0;     // its number among those of all optimizers

    // `number`: of all optimizers' steps so far, this one included.
    void Stepped(uint64_t number) {
      trained |= training;
      training = evaluating = unsure = false;
      asked_before = std::exchange(asked, false);
      alternates = number - std::exchange(last_step, number) > 1;
      ++steps;
    }
    void Fields(Archive& archive) {
      archive(trained, training, evaluating, unsure, asked, asked_before,
              alternates, steps, last_step);
    }
  };

  void FirstCallTrained(const Optimizer& optimizer) {
    std::vector<uint32_t> others;
    for (uint32_t module : optimizer.modules) {
      if (!models_.contains(module)) others.push_back(module);
    }
    if (others.size() == 1) models_[others.front()].trained = true;
  }

  void CalledWithoutGradients(const Call& call) {
    const auto model = models_.find(call.object);
    if (model == models_.end() || !IsRootForward(call)) return;
    model->second.asked |= call.Is(kModuleTraining);
  }

  void Called(uint32_t object, const Call& call) {
    Model& model = models_[object];
    (call.Is(kModuleTraining) ? model.training : model.evaluating) = true;
  }

  template <typename Predicate>
  size_t Count(const Optimizer& optimizer, const Predicate& predicate) const {
    size_t count = 0;
    for (uint32_t module : optimizer.modules) {
      const auto model = models_.find(module);
      count += model != models_.end() && predicate(model->second);
    }
    return count;
  }

  // The object of a call whose module has no number yet.
  static constexpr uint32_t kUnnamed = 0;

  std::map<uint32_t, Model> models_;  // by module
  // Wrappers whose call has begun, by what they are about to call.
  std::map<uint32_t, uint32_t> wrappers_;
  uint64_t steps_ = 0;  // of all optimizers
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_TRAINING_MODES_H_
