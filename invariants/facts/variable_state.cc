#include "invariants/facts/variable_state.h"

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
  trainable_ = event.Has(kRequiresGrad);
  grad_written_ = Tri::kNo;
  if (event.Has(kUnreadable)) {
    Forget();
    grad_written_ = Tri::kUnknown;
    return;
  }
  if (event.Has(kHasData)) ApplyData(event);
  if (SaysGradient(event)) ApplyGrad(event);
}

void VariableState::ApplyData(const StateEvent& event) {
  const bool differs = data_ && *data_ != event.data;
  if (!data_ || differs) data_writer_ = WriterOf(event);
  if (differs && IsSeenLater(event.point)) data_writer_ = {};
  if (event.point == StatePoint::kPreStep) {
    pre_step_data_ = event.data;
  } else if (event.point == StatePoint::kPostStep && pre_step_data_) {
    changed_in_step_ = ToTri(*pre_step_data_ != event.data);
  }
  data_ = event.data;
}

void VariableState::ApplyGrad(const StateEvent& event) {
  const bool none = event.Has(kGradIsNone);
  const bool nonzero = !none && !event.Has(kGradIsZero);
  const uint64_t digest = GradDigest(event);
  const bool differs = grad_ ? *grad_ != digest : nonzero;
  if (differs && event.point != StatePoint::kPreStep) {
    grad_writer_ = WriterOf(event);
  }
  const bool unsure = !grad_ && forgotten_ && nonzero;
  grad_written_ = unsure ? Tri::kUnknown : ToTri(differs && !none);
  forgotten_ = false;
  if (event.point == StatePoint::kBackwardEnd && nonzero) got_grad_ = true;
  if (event.point == StatePoint::kPreStep) {
    has_grad_ = ToTri(!none);
    nonzero_ = ToTri(nonzero);
  }
  grad_ = digest;
}

void VariableState::BeginStep() {
  pre_step_data_.reset();
  changed_in_step_ = has_grad_ = nonzero_ = Tri::kUnknown;
}

void VariableState::EndStep() { got_grad_ = false; }

void VariableState::Forget() {
  data_.reset();
  forgotten_ |= grad_.has_value();
  grad_.reset();
  pre_step_data_.reset();
  changed_in_step_ = has_grad_ = nonzero_ = Tri::kUnknown;
  data_writer_ = grad_writer_ = {};
}

}  // namespace traincheck
