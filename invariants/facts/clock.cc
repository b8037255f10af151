#include "invariants/facts/clock.h"

#include <algorithm>

namespace traincheck {

namespace {

// Whose loop it is: a backward's calls on an engine thread are its thread's.
uint32_t LoopOf(const Call& call) {
  return call.Is(kForeignParent) ? call.parent_ring : call.ring;
}

}  // namespace

bool Clock::Counts(const Call& call) const {
  return !call.Is(kInsideBackward) && !contexts_.InsideStep(call.ring);
}

bool Clock::Trains(const MarkEvent& mark) const {
  if (!mark.call) return contexts_.Trains(mark.ring);
  return contexts_.Trains(*mark.call) && Counts(*mark.call);
}

void Clock::OnCallBegin(const Call& call) {
  OnSkeletonCall(call);
  contexts_.OnCallBegin(call);
}

void Clock::OnSkeletonCall(const Call& call) {
  const uint32_t loop = LoopOf(call);
  if (IsOptimizerStep(call)) {
    rules_.Tell(
        loop, [&](StepRule& rule) { return rule.OptimizerStep(call.object); });
  } else if (HasCategory(call, CallCategory::kOptimizerInit)) {
    rules_.OptimizerMade();
  } else if (HasCategory(call, CallCategory::kBackward)) {
    if (call.Is(kInsideBackward)) return;
    rules_.Tell(loop, [](StepRule& rule) { return rule.Backward(), false; });
    epochs_.Backward();
  } else if (!Counts(call)) {
    return;
  } else if (IsRootForward(call) && contexts_.Trains(call)) {
    rules_.Tell(loop, [](StepRule& rule) { return rule.TrainingForward(); });
  } else if (HasCategory(call, CallCategory::kZeroGrad) &&
             call.Is(kOutermost)) {
    rules_.Tell(loop, [](StepRule& rule) { return rule.GradClear(); });
  } else if (HasCategory(call, CallCategory::kDestroyProcessGroup)) {
    rules_.Tell(loop, [](StepRule& rule) { return rule.End(); });
  }
}

void Clock::OnCallEnd(const Call& call) {
  contexts_.OnCallEnd(call);
  if (IsOptimizerStep(call)) ++optimizers_[call.object].steps;
}

void Clock::OnMark(const MarkEvent& mark) {
  contexts_.OnMark(mark);
  switch (mark.kind) {
    case MarkKind::kBatchFetched:
      if (!Trains(mark)) return;
      epochs_.Fetched(mark.object, mark.value);
      rules_.Tell(mark.ring, [&](StepRule& rule) {
        return rule.BatchFetched(mark.object);
      });
      return;
    case MarkKind::kIteratorExhausted:
      epochs_.IteratorEnded(mark.object);
      if (!Trains(mark)) return;
      rules_.Tell(mark.ring, [&](StepRule& rule) {
        return rule.IteratorEnd(mark.object);
      });
      return;
    case MarkKind::kIteratorAbandoned:
      epochs_.IteratorEnded(mark.object);
      return;
    case MarkKind::kStepSkipped:
      ++optimizers_[mark.object].skipped;
      rules_.Tell(mark.ring, [&](StepRule& rule) {
        return rule.OptimizerStep(mark.object);
      });
      return;
    case MarkKind::kUserStep:
      rules_.Tell(mark.ring, [](StepRule& rule) { return rule.UserStep(); });
      return;
    case MarkKind::kCleanExit:
      rules_.EndAll();
      return;
    case MarkKind::kStepClosed:
      return OnStepClosed(mark);
    default:
      return;
  }
}

void Clock::OnStepClosed(const MarkEvent& mark) {
  if (!synced_) return Resync(mark.value + 1);
  // The mark stands just before or just after the closing event. Where several
  // threads train, the others' events may stand on the other side of it.
  const uint64_t others = rules_.rules().size() > 1 ? rules_.rules().size() : 0;
  const uint64_t after = mark.value + 1;
  if (step() + 1 + others < after || step() > after + others) ++disagreements_;
}

// After a gap: the agent's count is taken over. The clock of an optimizer
// that stepped once in every step so far goes with it; others stay unknown.
void Clock::Resync(uint64_t next_step) {
  const uint64_t closed = step();
  const bool stepped =
      std::any_of(rules_.rules().begin(), rules_.rules().end(),
                  [](const auto& loop) { return loop.second.stepped(); });
  for (auto& [id, optimizer] : optimizers_) {
    const uint64_t open = stepped ? closed + 1 : closed;
    optimizer.known = optimizer.known &&
                      (optimizers_.size() == 1 && optimizer.skipped == 0 &&
                       (optimizer.steps == closed || optimizer.steps == open));
    optimizer.steps = next_step;
  }
  rules_.RestartAt(next_step);
  synced_ = true;
}

std::optional<uint64_t> Clock::OptimizerSteps(uint32_t optimizer) const {
  if (!synced_) return std::nullopt;
  const auto found = optimizers_.find(optimizer);
  if (found == optimizers_.end()) return 0;
  if (!found->second.known) return std::nullopt;
  return found->second.steps;
}

uint64_t Clock::SkippedSteps(uint32_t optimizer) const {
  const auto found = optimizers_.find(optimizer);
  return found == optimizers_.end() ? 0 : found->second.skipped;
}

}  // namespace traincheck
