// Errors in runs of which not every step is recorded in full: they are found in
// the next step that is. That healthy ones stay quiet is in engine_test.
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace traincheck {
namespace {

// What is wrong from step 1 on is found in the next step that is recorded.
TEST(Faults, AreFoundInTheNextStepThatIsSampled) {
  for (const bool loader : {true, false}) {
    TrainingOptions options = Target();
    options.loader = loader;
    options.steps = 10;
    options.sample_every = 4;
    options.fault_step = 1;
    options.fault = TrainingFault::kBypassWrapper;
    Checked checked = Check(Learned(), "other", options);
    const Violation* drift = FindViolation(checked, kEqualAfterStep);
    ASSERT_NE(drift, nullptr) << Print(checked);
    EXPECT_EQ(drift->first_step, 4);
    EXPECT_EQ(drift->last_step, 8);
    EXPECT_EQ(drift->count, 2u);
    // Its calls are of the skeleton.
    const Violation* wrapper = FindViolation(checked, kWrapper);
    ASSERT_NE(wrapper, nullptr) << Print(checked);
    EXPECT_EQ(wrapper->first_step, 1);
    options.fault = TrainingFault::kWrongParameters;
    options.fault_step = 0;
    checked = Check(Learned(), "other", options);
    const Violation* gradients = FindViolation(checked, kGradients);
    ASSERT_NE(gradients, nullptr) << Print(checked);
    EXPECT_EQ(gradients->count, 6u);  // steps 0, 4, 8 of two ranks
  }
}

TEST(Faults, GradientsNeverClearedAreFoundWhereNobodyCanHaveClearedThem) {
  TrainingOptions options = Target();
  options.steps = 10;
  options.sample_every = 4;
  options.fault = TrainingFault::kNoClear;
  const Checked checked = Check(Learned(), "other", options);
  const Violation* cleared = FindViolation(checked, kCleared);
  ASSERT_NE(cleared, nullptr) << Print(checked);
  EXPECT_EQ(cleared->first_step, 4);
  EXPECT_EQ(cleared->count, 4u);  // steps 4, 8 of two ranks
}

// Of ranks that sample differently the common steps are compared.
TEST(Faults, RanksThatSampleDifferentlyHaveCommonSteps) {
  TrainingOptions options = Target();
  options.steps = 20;
  options.sample_every = 2;
  options.ranks_sample_alike = false;
  options.fault = TrainingFault::kBypassWrapper;
  options.fault_step = 1;
  const Checked checked = Check(Learned(), "other", options);
  const Violation* drift = FindViolation(checked, kEqualAfterStep);
  ASSERT_NE(drift, nullptr) << Print(checked);
  EXPECT_EQ(drift->first_step, 4);
  EXPECT_EQ(drift->count, 4u);  // 4, 8, 12, 16
}

}  // namespace
}  // namespace traincheck
