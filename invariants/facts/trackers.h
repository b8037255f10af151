// The trackers of one process: a new one is a member and its place in All().
// Only process_facts.cc needs all of them; whoever reads a fact includes the
// header of the tracker that keeps it.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_TRACKERS_H_
#define TRAINCHECK_INVARIANTS_FACTS_TRACKERS_H_

#include <tuple>

#include "invariants/facts/accumulated_means.h"
#include "invariants/facts/autocast.h"
#include "invariants/facts/blamed_calls.h"
#include "invariants/facts/clipped_gradients.h"
#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/frozen_modes.h"
#include "invariants/facts/grad_scaling.h"
#include "invariants/facts/loader_passes.h"
#include "invariants/facts/module_modes.h"
#include "invariants/facts/observations.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/random_draws.h"
#include "invariants/facts/row_changes.h"
#include "invariants/facts/sight.h"
#include "invariants/facts/training_modes.h"
#include "invariants/facts/variable_states.h"
#include "invariants/facts/wrapper_calls.h"

namespace traincheck {

struct Trackers {
  // What `read` names must outlive this object.
  explicit Trackers(const FactInputs& read) : inputs(read) {}
  Trackers(const Trackers&) = delete;
  Trackers& operator=(const Trackers&) = delete;

  // In the order in which they take over an event and are saved:
  // optimizer_books reads variables as the event leaves it.
  auto All() {
    return std::tie(autocast, wrapper_calls, module_modes, training_modes,
                    random_draws, loader_passes, grad_scaling, row_changes,
                    variables, optimizer_books, frozen_modes, accumulated_means,
                    observations, clipped_gradients, sight, blamed_calls);
  }
  // No event costs a virtual call: each tracker's class is known here.
  template <typename Function>
  void ForEach(const Function& function) {
    std::apply([&](auto&... tracker) { (function(tracker), ...); }, All());
  }

  const FactInputs inputs;
  Autocast autocast{&inputs};
  WrapperCalls wrapper_calls{&inputs};
  ModuleModes module_modes{&inputs};
  TrainingModes training_modes{&inputs};
  RandomDraws random_draws{&inputs};
  LoaderPasses loader_passes{&inputs};
  GradScaling grad_scaling{&inputs};
  RowChanges row_changes{&inputs};
  VariableStates variables{&inputs};
  OptimizerBooks optimizer_books{&inputs, &variables, &grad_scaling};
  FrozenModes frozen_modes{&inputs, &variables};
  AccumulatedMeans accumulated_means{&inputs};
  Observations observations{&inputs};
  ClippedGradients clipped_gradients{&inputs};
  SightTracker sight{&inputs};
  BlamedCalls blamed_calls{&inputs};
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_TRACKERS_H_
