#include "checker/compare/step_rung.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace traincheck {
namespace {

// In the order of StepRung. Clients are sent these names.
constexpr const char* kNames[] = {
    "setup",      "weights",  "mode",   "data",       "call",  "result",
    "collective", "gradient", "update", "checkpoint", "totals"};
static_assert(std::size(kNames) == static_cast<size_t>(kLastStepRung) + 1);

// Calls, results and collectives compare as one rung: a call's result is an
// argument of the next call, so that only the order of the records says which
// of them explains which.
StepRung Joined(StepRung rung) {
  const bool calls = rung == StepRung::kResult || rung == StepRung::kCollective;
  return calls ? StepRung::kCall : rung;
}

// Is what a variable holds at this point what the step, or the training, goes
// on from? Otherwise the step has made it.
bool BeginsStep(StatePoint point) {
  switch (point) {
    case StatePoint::kConstruction:
    case StatePoint::kWrapEnd:
    case StatePoint::kForwardBegin:
    case StatePoint::kStepEnd:  // recorded when the next step begins
    case StatePoint::kLoad:
    case StatePoint::kLoadStateDict:
      return true;
    default:
      return false;
  }
}

}  // namespace

const char* NameOf(StepRung rung) { return kNames[static_cast<size_t>(rung)]; }

// Partial only because positions are floating-point numbers (halves lie between
// two records); none of them is NaN.
std::partial_ordering PlaceInStep::operator<=>(const PlaceInStep& other) const {
  if (const auto by = phase <=> other.phase; by != 0) return by;
  if (const auto by = Joined(rung) <=> Joined(other.rung); by != 0) return by;
  return position <=> other.position;
}

// A generator or a batch stands on its own rung whenever it was recorded. Of
// tensors of the model the gradient is made by the backward, the data by the
// step before or by this one.
StepRung RungOfState(VariableKind kind, StatePoint point, bool data) {
  if (kind == VariableKind::kGenerator) return StepRung::kMode;
  if (kind == VariableKind::kLoaderState || kind == VariableKind::kInputs) {
    return StepRung::kData;
  }
  if (!data) return StepRung::kGradient;
  return BeginsStep(point) ? StepRung::kWeights : StepRung::kUpdate;
}

StepRung RungOfScalar(StatePoint point) {
  if (point == StatePoint::kFetch) return StepRung::kData;
  return point == StatePoint::kPostStep ? StepRung::kUpdate : StepRung::kSetup;
}

}  // namespace traincheck
