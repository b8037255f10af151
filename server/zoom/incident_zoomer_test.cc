#include "server/zoom/incident_zoomer.h"

#include <gtest/gtest.h>

#include "server/feedback/shown_violations_for_testing.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

class IncidentZoomerTest : public ShownViolationsTest {
 protected:
  IncidentZoomerTest()
      : plans_({.store = store_.get(), .registry = registry_.get()}),
        zoomer_({.registry = registry_.get(),
                 .board = board_.get(),
                 .violations = violations_.get(),
                 .plans = &plans_,
                 .steps = 3}) {
    // In the order of their names, in which they are looked at.
    for (const char* run : {"a", "b"}) {
      Begin(run);
      EXPECT_TRUE(plans_.ChangeUntrusted(run, R"({"format": 1})").ok());
    }
  }
  ~IncidentZoomerTest() override { zoomer_.Stop(); }
  bool IsZoomedIn(const std::string& run) {
    return ComesTrue([&] {
      const auto zooms = plans_.Zooms(run);
      return zooms.ok() && !zooms->empty();
    });
  }

  RunPlans plans_;
  IncidentZoomer zoomer_;
};

TEST_F(IncidentZoomerTest, APlanThatCannotBeReadKeepsNoOtherRunFromItsZoom) {
  Put(Table::kRuns, PlanKey(*registry_->NumberOf("a"), 2), "\xff");
  zoomer_.Start();
  Post("a", "1");
  Post("b", "2");
  EXPECT_TRUE(IsZoomedIn("b"));
}

TEST_F(IncidentZoomerTest, MarksThatCannotBeReadKeepNoOtherRunFromItsZoom) {
  Put(Table::kMeta, MarkKey(*registry_->NumberOf("a"), "1"), "\xff");
  zoomer_.Start();
  Post("a", "1");
  Post("b", "2");
  EXPECT_TRUE(IsZoomedIn("b"));
}

TEST_F(IncidentZoomerTest, ADiskThatRefusesForATimeLosesNoZoom) {
  store_->RefuseNext(1);
  zoomer_.Start();
  Post("a", "1");
  EXPECT_TRUE(IsZoomedIn("a"));
  EXPECT_EQ(store_->still_to_refuse(), 0);
}

}  // namespace
}  // namespace traincheck::server
