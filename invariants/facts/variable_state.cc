#include "invariants/facts/variable_state.h"

#include <utility>

namespace traincheck {

namespace {

Writer WriterOf(const StateEvent& event) {
  if (!event.call) return {};
  return {event.call->function_id, event.call->site};
}

// Does the record say anything of the gradient?
bool SaysGradient(const StateEvent& event) {
  return event.Has(kHasGrad) || event.Has(kGradIsNone) ||
         event.Has(kGradIsZero);
}

// A change that is first seen when a step begins, or has closed, was made
// before the call within which it is seen.
bool IsSeenLater(StatePoint point) {
  return point == StatePoint::kPreStep || point == StatePoint::kStepEnd;
}

uint64_t GradDigest(const StateEvent& event) {
  if (event.Has(kGradIsNone)) return kNoGradientDigest;
  return event.Has(kHasGrad) ? event.grad : kZeroGradientDigest;
}

}  // namespace

void VariableState::Apply(const StateEvent& event) {
  // Where its optimizer's hold is recorded within the first step, nobody knew
  // at the begin of the call that the step is this variable's, too.
  if (event.point == StatePoint::kPreStep && !in_step_) BeginStep();
  const Tri trainable = ToTri(event.Has(kRequiresGrad));
  grad_written_ = Tri::kNo;
  if (event.Has(kUnreadable)) {
    // It may be a tensor whose turn it was not: its content is neither equal to
    // the one before nor different from it.
    Forget();
    is_forgotten_ = false;
    trainable_ = trainable;
    grad_written_ = Tri::kUnknown;
    return;
  }
  is_forgotten_ = false;
  trainable_ = trainable;
  if (event.Has(kHasData)) ApplyData(event);
  if (SaysGradient(event)) ApplyGrad(event);
}

void VariableState::ApplyData(const StateEvent& event) {
  const bool differs = data_ && *data_ != event.data;
  // An equal digest leaves the writer: whoever set the value first is to blame.
  if (!data_ || differs) data_writer_ = WriterOf(event);
  if (differs && IsSeenLater(event.point)) data_writer_ = {};
  if (event.point == StatePoint::kPreStep) {
    pre_step_data_ = event.data;
    CompareWithLastStep(event.data);
  } else if (event.point == StatePoint::kPostStep && pre_step_data_) {
    changed_in_step_ = ToTri(*pre_step_data_ != event.data);
  }
  // What the next step is compared with (BeginStep moves it to
  // after_step_before_).
  if (event.point == StatePoint::kPostStep) after_step_ = event.data;
  data_ = event.data;
  FollowContent(event);
}

// Clipped weights and the like change between all steps, or before the first
// few have passed.
constexpr uint32_t kStepsBefore = 3;

void VariableState::CompareWithLastStep(uint64_t data) {
  // A load replaces content on purpose: such a step says nothing of a habit.
  if (!after_step_before_ || !kept_ || loaded_) return;
  const bool kept = *after_step_before_ == data;
  if (kept) ++*kept_;
  const bool settled = *kept_ >= kStepsBefore;
  // Only the step at which a habit of some steps ends is reported. From there
  // on whoever writes the variable may do so on purpose.
  if (settled) overwritten_ = ToTri(!kept);
  if (!kept) kept_.reset();
}

void VariableState::FollowContent(const StateEvent& event) {
  switch (event.point) {
    case StatePoint::kConstruction:
      // Another tensor may have taken its place.
      first_ = event.data;
      updated_ = false;
      loaded_.reset();
      after_step_.reset();
      break;
    case StatePoint::kForwardBegin:
      at_forward_ = event.data;
      break;
    case StatePoint::kStepEnd:
      // What differs at the end of the step was written by the forwards in it:
      // no optimizer steps on a buffer.
      forward_writes_ |= at_forward_ && *at_forward_ != event.data;
      at_forward_.reset();
      break;
    case StatePoint::kLoad:
      loaded_ = event.data;
      // Also where it equals the first content: somebody wants it to be so.
      updated_ = true;
      break;
    case StatePoint::kPreStep:
      if (loaded_) loaded_kept_ = ToTri(*loaded_ == event.data);
      break;
    default:
      break;
  }
  updated_ |= first_ && *first_ != event.data;
}

void VariableState::Apply(const StatisticsEvent& event) {
  if (event.of != kHasGrad || event.point != StatePoint::kPreStep) return;
  is_forgotten_ = false;
  finite_ = ToTri(event.is_finite());
}

void VariableState::ApplyGrad(const StateEvent& event) {
  const bool none = event.Has(kGradIsNone);
  const bool nonzero = !none && !event.Has(kGradIsZero);
  const uint64_t digest = GradDigest(event);
  const bool differs = grad_ ? *grad_ != digest : nonzero;
  // As IsSeenLater says of data: the step within which it is seen first did not
  // write it.
  if (differs && event.point != StatePoint::kPreStep) {
    grad_writer_ = WriterOf(event);
  }
  // What is there after missing records may be new, or what was there before.
  const bool unsure = !grad_ && forgotten_ && nonzero;
  grad_written_ = unsure ? Tri::kUnknown : ToTri(differs && !none);
  forgotten_ = false;
  // One that is still there from before was not given by this backward.
  const bool given = nonzero && grad_written_ != Tri::kNo;
  if (event.point == StatePoint::kBackwardEnd && given) got_grad_ = true;
  if (event.point == StatePoint::kPreStep || IsOfClosure(event.point)) {
    has_grad_ = ToTri(!none);
    nonzero_ = ToTri(nonzero);
    // Its statistics were those of the gradient before.
    if (event.point != StatePoint::kPreStep) finite_ = Tri::kUnknown;
    if (event.grad_is_finite) finite_ = ToTri(*event.grad_is_finite);
  }
  grad_ = digest;
}

// A closure makes the gradient that the step uses when the step has begun.
bool VariableState::IsOfClosure(StatePoint point) const {
  return in_step_ &&
         (point == StatePoint::kBackwardEnd || point == StatePoint::kPostClip);
}

void VariableState::BeginStep() {
  in_step_ = true;
  pre_step_data_.reset();
  changed_in_step_ = has_grad_ = nonzero_ = finite_ = Tri::kUnknown;
  loaded_kept_ = overwritten_ = Tri::kUnknown;
  // The step records its own end anew; if it is not recorded, the next step has
  // nothing to be compared with.
  after_step_before_ = std::exchange(after_step_, std::nullopt);
}

void VariableState::OptimizerIsNew() {
  after_step_.reset();
  after_step_before_.reset();
}

void VariableState::EndStep() {
  in_step_ = false;
  got_grad_ = false;
  loaded_.reset();
}

// Keeps that its optimizer's step is open (in_step_): what is recorded of the
// variable from here on still belongs to that step. Keeps what was found once
// as well (updated_, forward_writes_): missing records take nothing of it back.
void VariableState::Forget() {
  is_forgotten_ = true;
  trainable_ = Tri::kUnknown;
  data_.reset();
  forgotten_ |= grad_.has_value();
  grad_.reset();
  pre_step_data_.reset();
  changed_in_step_ = has_grad_ = nonzero_ = finite_ = Tri::kUnknown;
  at_forward_.reset();
  after_step_.reset();
  after_step_before_.reset();
  kept_.reset();
  loaded_.reset();
  loaded_kept_ = overwritten_ = Tri::kUnknown;
  data_writer_ = grad_writer_ = {};
}

void Writer::Fields(Archive& archive) { archive(function, site); }

void VariableState::Fields(Archive& archive) {
  archive(data_, grad_, pre_step_data_, trainable_, changed_in_step_, has_grad_,
          nonzero_, finite_, in_step_, got_grad_, grad_written_, forgotten_,
          first_, updated_, at_forward_, forward_writes_, loaded_, loaded_kept_,
          after_step_, after_step_before_, kept_, overwritten_, data_writer_,
          grad_writer_);
}

}  // namespace traincheck
