#include "invariants/trace/clock.h"

#include <algorithm>

namespace traincheck {

namespace {

// The ring of the thread whose training loop the call belongs to. Autograd runs
// parts of a backward on threads of its own; calls there belong to the loop of
// the thread that called backward.
uint32_t LoopOf(const Call& call) {
  return call.Is(kForeignParent) ? call.parent_ring : call.ring;
}

}  // namespace

// A closure of LBFGS runs the model several times within one step, and
// checkpointing runs it again within the backward. Without this test such a
// forward could close the step that it is a part of.
bool Clock::Counts(const Call& call) const {
  return !call.Is(kInsideBackward) && !contexts_.InsideStep(call.ring);
}

bool Clock::Trains(const MarkEvent& mark) const {
  // A batch that the loop itself fetches has no call around it, and so no
  // gradient mode: only a stage that the user named can say that it is not
  // training.
  if (!mark.call) return contexts_.Trains(mark.ring);
  return contexts_.Trains(*mark.call) && Counts(*mark.call);
}

// The contexts come second: what counts is what surrounds the call, and not
// what it opens itself.
void Clock::OnCallBegin(const Call& call) {
  OnSkeletonCall(call);
  contexts_.OnCallBegin(call);
}

// Steps, new optimizers and backwards count wherever they are called. Forwards,
// clears and the rest count only outside of steps and backwards: see Counts.
void Clock::OnSkeletonCall(const Call& call) {
  const uint32_t loop = LoopOf(call);
  if (IsOptimizerStep(call)) {
    Tell(loop, [&](StepRule& rule) { return rule.OptimizerStep(call.object); });
  } else if (HasCategory(call, CallCategory::kOptimizerInit)) {
    rules_.OptimizerMade();
  } else if (HasCategory(call, CallCategory::kBackward)) {
    // A backward within a backward (reentrant checkpointing,
    // torch.autograd.backward below Tensor.backward) belongs to the outer one.
    if (call.Is(kInsideBackward)) return;
    // Tell expects from the event whether it closes a step. A backward never
    // does.
    Tell(loop, [](StepRule& rule) { return rule.Backward(), false; });
    epochs_.Backward();
    // A training that breaks off behind this (an exception, a collective that
    // nobody answers) has begun the step all the same.
    steps_begun_ = std::max(steps_begun_, step() + 1);
  } else if (!Counts(call)) {
    return;
  } else if (IsRootForward(call) && contexts_.Trains(call)) {
    Tell(loop, [](StepRule& rule) { return rule.TrainingForward(); });
  } else if (HasCategory(call, CallCategory::kZeroGrad) &&
             call.Is(kOutermost)) {
    Tell(loop, [](StepRule& rule) { return rule.GradClear(); });
  } else if (HasCategory(call, CallCategory::kDestroyProcessGroup)) {
    Tell(loop, [](StepRule& rule) { return rule.End(); });
  }
}

void Clock::OnCallEnd(const Call& call) {
  contexts_.OnCallEnd(call);
  // Only here: during the whole call the optimizer's clock says how many steps
  // were made before, as the agent's mark of its begin does.
  if (IsOptimizerStep(call)) ++Find(call.object).steps;
  if (HasCategory(call, CallCategory::kOptimizerInit) && call.object != 0) {
    // One that is constructed here has made no step, so its clock is known even
    // after a gap.
    optimizers_[call.object] = OptimizerClock();
  }
}

void Clock::OnMark(const MarkEvent& mark) {
  contexts_.OnMark(mark);
  switch (mark.kind) {
    case MarkKind::kBatchFetched:
      if (!Trains(mark)) return;
      epochs_.Fetched(mark.object, mark.value);
      Tell(mark.ring,
           [&](StepRule& rule) { return rule.BatchFetched(mark.object); });
      return;
    case MarkKind::kIteratorExhausted:
      // Epochs is given the end of every loader, and looks at it only if the
      // loader has trained.
      epochs_.IteratorEnded(mark.object);
      if (!Trains(mark)) return;
      Tell(mark.ring,
           [&](StepRule& rule) { return rule.IteratorEnd(mark.object); });
      return;
    case MarkKind::kIteratorAbandoned:
      // A loop that is left early ends the pass over the data. It closes no
      // step: the agent's rule (proto/step_rule.h) does not know this event.
      epochs_.IteratorEnded(mark.object);
      return;
    case MarkKind::kStepSkipped:
      // Replicas are compared by their optimizer's own count. A step that the
      // other ranks made (torch's Join) therefore counts here too; a step that
      // a scaler left out is not a step of any rank. Both close a training
      // step.
      ++(static_cast<SkippedStep>(mark.value) == SkippedStep::kMadeByOtherRanks
             ? Find(mark.object).steps
             : Find(mark.object).skipped);
      Tell(mark.ring,
           [&](StepRule& rule) { return rule.OptimizerStep(mark.object); });
      return;
    case MarkKind::kUserStep:
      Tell(mark.ring, [](StepRule& rule) { return rule.UserStep(); });
      return;
    case MarkKind::kCleanExit:
      // A step is closed by the event that begins the next one. Behind the last
      // step of a run nothing follows, so the exit closes it.
      rules_.EndAll();
      ended_ = true;
      return;
    case MarkKind::kStepClosed:
      return OnStepClosed(mark);
    case MarkKind::kOptimizerSteps:
      return OnOptimizerSteps(mark);
    default:
      return;
  }
}

std::optional<uint64_t> Clock::steps_made() const {
  const std::optional<uint64_t> closed = ended_ ? known_step() : std::nullopt;
  if (!closed) return std::nullopt;
  return std::max(*closed, steps_begun_);
}

Clock::OptimizerClock& Clock::Find(uint32_t optimizer) {
  // After a gap an optimizer that is met for the first time may have stepped
  // unseen: its count is not known until an OptimizerSteps mark.
  return optimizers_.try_emplace(optimizer, OptimizerClock{0, 0, !told_})
      .first->second;
}

template <typename Event>
void Clock::Tell(uint32_t loop, const Event& event) {
  // The rule's state misses what was in the gap: from there on only the agent's
  // marks count.
  if (told_) return;
  // OnStepClosed has closed the step ahead of this event. The event must close
  // it by the rule as it was before that; otherwise clock and agent disagree.
  if (expected_) disagreements_ += !event(*expected_);
  expected_.reset();
  rules_.Tell(loop, event);
}

void Clock::OnStepClosed(const MarkEvent& mark) {
  if (told_) return Follow(mark.value + 1);
  const auto& loops = rules_.rules();
  // The mark stands just before or just after the closing event. Where several
  // threads train, the others' events may stand on the other side of it.
  // Closing at the mark puts the states at the end of the step, which stand
  // between mark and event, into the step that closes.
  if (loops.size() == 1 && step() == mark.value) {
    expected_ = loops.begin()->second;
    rules_.Tell(loops.begin()->first,
                [](StepRule& rule) { return rule.CloseAhead(); });
    return;
  }
  // Each other thread may put the counts apart by one.
  const uint64_t others = loops.size() > 1 ? loops.size() : 0;
  const uint64_t after = mark.value + 1;
  if (step() + others < after || step() > after + others) ++disagreements_;
}

void Clock::OnGap() {
  // The least that the step can be, until the agent's next mark says it.
  told_ = step();
  synced_ = false;
  expected_.reset();
  contexts_.OnGap();
  for (auto& [id, optimizer] : optimizers_) optimizer.known = false;
}

void Clock::OnOptimizerSteps(const MarkEvent& mark) {
  // Without missing records the count is exact as it is.
  if (!told_) return;
  // The mark stands within the call of the step, and its value is the number of
  // steps before. OnCallEnd counts this step too, if the begin of the call was
  // recorded; otherwise it is counted here.
  const bool counts = mark.call && IsOptimizerStep(*mark.call) &&
                      mark.call->object == mark.object;
  OptimizerClock& clock = optimizers_[mark.object];
  clock.steps = mark.value + (counts ? 0 : 1);
  clock.known = true;
}

void Clock::Follow(uint64_t next_step) {
  // Marks of several threads that train may come out of order.
  told_ = synced_ ? std::max(*told_, next_step) : next_step;
  synced_ = true;
}

std::optional<uint64_t> Clock::OptimizerSteps(uint32_t optimizer) const {
  const auto found = optimizers_.find(optimizer);
  if (found == optimizers_.end()) {
    // No step of it was seen; in a gap there may have been some.
    return told_ ? std::nullopt : std::optional<uint64_t>(0);
  }
  if (!found->second.known) return std::nullopt;
  return found->second.steps;
}

uint64_t Clock::SkippedSteps(uint32_t optimizer) const {
  const auto found = optimizers_.find(optimizer);
  return found == optimizers_.end() ? 0 : found->second.skipped;
}

void Clock::Fields(Archive& archive) {
  archive(rules_, expected_, told_, synced_, ended_, steps_begun_,
          disagreements_, optimizers_, contexts_, epochs_);
}

void Clock::OptimizerClock::Fields(Archive& archive) {
  archive(steps, skipped, known);
}

}  // namespace traincheck
