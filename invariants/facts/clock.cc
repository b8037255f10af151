#include "invariants/facts/clock.h"

namespace traincheck {

bool Clock::Counts(const Call& call) const {
  const auto open = open_steps_.find(call.ring);
  return !call.Is(kInsideBackward) &&
         (open == open_steps_.end() || open->second == 0);
}

void Clock::OnCallBegin(const Call& call) {
  if (IsOptimizerStep(call)) {
    rule_.OptimizerStep(call.object);
    ++open_steps_[call.ring];
  } else if (HasCategory(call, "backward")) {
    if (!call.Is(kInsideBackward)) rule_.Backward();
    training_loader_ = fetched_from_;
  } else if (!Counts(call)) {
    return;
  } else if (IsTrainingRootForward(call)) {
    rule_.TrainingForward();
  } else if (HasCategory(call, "zero_grad") && call.Is(kOutermost)) {
    rule_.GradClear();
  } else if (HasCategory(call, "destroy_process_group")) {
    rule_.End();
  }
}

void Clock::OnCallEnd(const Call& call) {
  if (!IsOptimizerStep(call)) return;
  ++optimizers_[call.object].steps;
  uint32_t& open = open_steps_[call.ring];
  if (open > 0) --open;
}

void Clock::OnMark(const MarkEvent& mark) {
  // Loaders that are read without gradients feed no training.
  const bool trains =
      !mark.call || (mark.call->Is(kGradEnabled) && Counts(*mark.call));

  switch (mark.kind) {
    case MarkKind::kIteratorCreated:
      ++iterators_[mark.object];
      return;
    case MarkKind::kBatchFetched:
      if (!trains) return;
      fetched_from_ = mark.object;
      rule_.BatchFetched();
      return;
    case MarkKind::kIteratorExhausted:
      if (trains) rule_.End();
      return;
    case MarkKind::kCleanExit:
      rule_.End();
      return;
    case MarkKind::kStepClosed:
      if (!synced_) {
        Resync(mark.value + 1);
      } else if (step() != mark.value && step() != mark.value + 1) {
        // The mark stands just before or just after the closing event.
        ++disagreements_;
      }
      return;
    default:
      return;
  }
}

// After a gap: the agent's count is taken over. The clock of an optimizer
// that stepped once in every step so far goes with it; others stay unknown.
void Clock::Resync(uint64_t next_step) {
  const uint64_t closed = step();
  for (auto& [id, optimizer] : optimizers_) {
    const uint64_t open = rule_.stepped() ? closed + 1 : closed;
    optimizer.known = optimizer.known &&
                      (optimizers_.size() == 1 &&
                       (optimizer.steps == closed || optimizer.steps == open));
    optimizer.steps = next_step;
  }
  rule_ = StepRule();
  rule_.Backward();
  offset_ = next_step;
  synced_ = true;
}

std::optional<uint64_t> Clock::epoch() const {
  const auto found = iterators_.find(training_loader_);
  if (found == iterators_.end() || found->second == 0) return std::nullopt;
  return found->second - 1;
}

std::optional<uint64_t> Clock::OptimizerSteps(uint32_t optimizer) const {
  if (!synced_) return std::nullopt;
  const auto found = optimizers_.find(optimizer);
  if (found == optimizers_.end()) return 0;
  if (!found->second.known) return std::nullopt;
  return found->second.steps;
}

}  // namespace traincheck
