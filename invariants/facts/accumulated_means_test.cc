#include "invariants/facts/accumulated_means.h"

#include <gtest/gtest.h>

#include <string>

namespace traincheck {
namespace {

// w -= lr * w.grad; w.grad = None: neither a step nor a clear is seen.
TEST(AccumulatedMeans, ALoopThatStepsByHandLeavesNothingBehind) {
  const ProcessDefinitions definitions;
  const Ownership ownership(&definitions);
  const RecordedSteps recorded;
  const Gaps gaps;
  const FactInputs inputs{definitions, ownership, recorded, gaps};
  AccumulatedMeans means(&inputs);
  const std::string name = "loss.targets";
  const auto saved_after = [&](int backwards) {
    for (int i = 0; i < backwards; ++i) {
      means.OnScalar({0, StatePoint::kBackwardEnd, 0, &name, 6.0});
    }
    Archive to;
    means.Fields(to);
    return to.TakeBytes().size();
  };
  const size_t before = saved_after(100);
  // Numbers that have grown by a digit.
  EXPECT_LT(saved_after(1000), before + 10);
}

}  // namespace
}  // namespace traincheck
