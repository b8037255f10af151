// On which rung of a training step two runs differ. These are the rungs of the
// ladder of causes (checker/incidents/ladder.h) with one more, the weights that
// a step begins with: rules never ask for their content, two runs can be
// compared by it.
//
// Threads: constant tables, pure functions.
#ifndef TRAINCHECK_CHECKER_COMPARE_STEP_RUNG_H_
#define TRAINCHECK_CHECKER_COMPARE_STEP_RUNG_H_

#include <compare>
#include <cstdint>

#include "invariants/trace/definitions.h"
#include "proto/record_format.h"

namespace traincheck {

// In the order in which one explains the next.
enum class StepRung {
  kSetup,       // what models and optimizers consist of, settings
  kWeights,     // parameters and buffers that the step begins with
  kMode,        // training mode, gradients, autocast, random generators
  kData,        // what loaders give
  kCall,        // which calls are made, their order and arguments
  kResult,      // what calls return
  kCollective,  // what ranks exchange
  kGradient,
  kUpdate,      // parameters, buffers and optimizer state after a step
  kCheckpoint,  // what checkpoints take and give
  kTotals,      // how many steps are made
};
inline constexpr StepRung kLastStepRung = StepRung::kTotals;

// "setup"
const char* NameOf(StepRung rung);

// Where in a step a difference lies; what is less comes first. A step has
// phases, which end with its backwards and with the steps of its optimizers:
// what comes after a backward explains nothing before it, whatever its rung. In
// a phase the rungs decide; calls, results and collectives are one rung there,
// because one call's result is another's argument. Then comes what was recorded
// first.
struct PlaceInStep {
  uint32_t phase = 0;
  StepRung rung = StepRung::kSetup;
  double position = 0;  // among the records of the step

  std::partial_ordering operator<=>(const PlaceInStep& other) const;
  bool operator==(const PlaceInStep& other) const {
    return (*this <=> other) == 0;
  }
};

// Of the data (or else the gradient) of a variable at a state point.
StepRung RungOfState(VariableKind kind, StatePoint point, bool data);
// Of a number of an optimizer, a scheduler, a scaler or a loader.
StepRung RungOfScalar(StatePoint point);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_STEP_RUNG_H_
