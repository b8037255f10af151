#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace traincheck {
namespace {

TEST(Engine, Dump) {
  const InferenceResult learned = Learn(TwoReferences());
  for (const auto& i : learned.invariants)
    printf("%s %s %s %lu %s  %s\n", i.id.c_str(), i.relation.c_str(),
           i.scope == Scope::kGeneral ? "general" : "experiment", i.support,
           i.text.c_str(), i.precondition.dump().c_str());
  for (const auto& [r, n] : learned.dropped) printf("%s: %u\n", r.c_str(), n);
  TrainingOptions healthy;
  healthy.model = "Other";
  healthy.optimizer = "torch.optim.adamw.AdamW";
  printf("%s", Print(Check(learned, "other", healthy)).c_str());
  TrainingOptions b = healthy;
  b.fault = TrainingFault::kBypassWrapper;
  b.fault_step = 2;
  printf("%s", Print(Check(learned, "other", b)).c_str());
  TrainingOptions c = healthy;
  c.fault = TrainingFault::kWrongParameters;
  printf("%s", Print(Check(learned, "other", c)).c_str());
}

}  // namespace
}  // namespace traincheck
