#include "invariants/rules/fact_needs.h"

namespace traincheck {

namespace {

constexpr char kScaler[] = "torch.amp.grad_scaler.GradScaler.";

void AddUpdates(CaptureNeeds* needs) {
  needs->State("parameter.data", "pre_step");
  needs->State("parameter.data", "post_step");
}

// How it was at first and as it was loaded; and around the forwards of a step,
// whether they write it.
void AddBuffers(CaptureNeeds* needs) {
  for (const char* point :
       {"construction", "forward_begin", "step_end", "load"}) {
    needs->State("buffer.data", point);
  }
}

// The gradient's state, too: statistics are recorded of a gradient that is
// there, and only its state says that there is none.
void AddStatistics(CaptureNeeds* needs) {
  needs->State("parameter.grad", "pre_step");
  needs->Statistics("parameter.grad", "pre_step");
}

// The states are needed as well: rows come behind the state record of their
// tensor.
void AddRows(CaptureNeeds* needs) {
  AddUpdates(needs);
  needs->State("parameter.grad", "pre_step");
  needs->Rows("parameter.data", "pre_step");
  needs->Rows("parameter.data", "post_step");
  needs->Rows("parameter.grad", "pre_step");
}

void AddScaler(CaptureNeeds* needs) {
  const std::string scaler = kScaler;
  PlannedCall& scale = needs->Calls(scaler + "scale");
  scale.arguments.insert("outputs");
  // An enabled scaler gives back another tensor than it was given.
  scale.returns = true;
  needs->Calls(scaler + "unscale_").arguments.insert("optimizer");
  // Within a scaler's step gradients count as unscaled (GradScaling::Scaled).
  needs->Calls(scaler + "step");
  needs->Gradients();  // cleared by hand
}

}  // namespace

void AddNeeds(const Fact& fact, CaptureNeeds* needs) {
  if (fact.looked_at_since > 0) {
    needs->LooksAt(fact.name, fact.looked_at_since);
  }
  switch (fact.need) {
    case FactNeed::kNone:
      return;
    case FactNeed::kAny:
      return needs->State("parameter.data", "pre_step");
    case FactNeed::kGradients:
      return needs->Gradients();
    case FactNeed::kUpdates:
      return AddUpdates(needs);
    case FactNeed::kUpdatesOfFrozen:
      needs->State("parameter.grad", "pre_step");
      return AddUpdates(needs);
    case FactNeed::kBuffers:
      return AddBuffers(needs);
    case FactNeed::kStatistics:
      return AddStatistics(needs);
    case FactNeed::kRows:
      return AddRows(needs);
    case FactNeed::kLoads:
      needs->State("parameter.data", "load");
      return needs->State("parameter.data", "pre_step");
    case FactNeed::kOverwrites:
      needs->State("parameter.data", "load");
      return AddUpdates(needs);
    case FactNeed::kGenerators:
      return needs->Generators();
    case FactNeed::kScaler:
      return AddScaler(needs);
    case FactNeed::kDropout:
      // Asked of all functions with the role, under each name that one of them
      // has for it.
      needs->Calls("dropout").arguments.insert(
          {"p", "dropout_p", "training", "train"});
      return;
    case FactNeed::kLosses:
      needs->Calls("loss").arguments.insert({"input", "target"});
      return;
  }
}

}  // namespace traincheck
