#include "server/plans/run_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "invariants/rules/capture_plan.h"
#include "invariants/sets/invariant_for_testing.h"
#include "server/runs/registry_for_testing.h"
#include "server/store/forwarding_store_for_testing.h"
#include "server/store/run_range.h"

namespace traincheck::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kByHand[] = R"({"format": 1, "mode": "full", "version": 77})";

// A set with one rule, which is about calls of `function`.
InvariantSet SetAbout(const std::string& function) {
  InvariantSet set;
  set.name = "rules";
  set.version = 3;
  set.invariants = {NewInvariant(
      "EventContain",
      {{"window", {{"kind", "call"}, {"function", {{"name", function}}}}},
       {"event",
        {{"kind", "call"},
         {"function", {{"category", "backward"}}},
         {"binding", "any"}}}})};
  return set;
}

class RunPlansTest : public RegistryTest {
 protected:
  RunPlansTest() { Renew(); }

  void Renew() {
    plans_ = std::make_unique<RunPlans>(RunPlans::Dependencies{
        .store = store_.get(), .registry = registry_.get()});
  }
  // The daemon, stopped and started again.
  void StartAgain() {
    plans_.reset();
    Restart();
    Renew();
  }
  void BeginCheck(const InvariantSet& set) {
    plans_->OnCheckBegins(*registry_->View("run"), set);
  }
  std::unique_ptr<RunPlans::Subscription> Listen(
      std::vector<v1::PlanChange>* heard) {
    return plans_->Subscribe("run", [heard](const v1::PlanChange& change) {
      heard->push_back(change);
    });
  }

  std::unique_ptr<RunPlans> plans_;
};

TEST_F(RunPlansTest, ARunThatBeginsGetsThePlanOfItsSetFromStepZero) {
  Open(1);
  std::vector<v1::PlanChange> heard;
  const auto listening = Listen(&heard);
  EXPECT_TRUE(heard.empty());
  BeginCheck(SetAbout("f"));
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].version(), 1u);
  EXPECT_EQ(heard[0].from_step(), 0u);
  const json plan = json::parse(heard[0].plan());
  EXPECT_EQ(plan.at("version"), 1);
  EXPECT_EQ(plan.at("calls").at(0).at("function"), "f");
  // Exactly what a file for its start would say.
  EXPECT_EQ(heard[0].plan(), PlanOfSet(SetAbout("f")).json());
}

TEST_F(RunPlansTest, WhoComesLaterHearsTheNewest) {
  Open(1);
  BeginCheck(SetAbout("f"));
  ASSERT_TRUE(plans_->ChangeUntrusted("run", kByHand).ok());
  std::vector<v1::PlanChange> heard;
  const auto listening = Listen(&heard);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].version(), 2u);
}

TEST_F(RunPlansTest, AChangeHoldsTwoStepsAfterTheNewest) {
  const StreamId stream = Open(1);
  AddStep(stream, 40);
  const auto changed = plans_->ChangeUntrusted("run", kByHand);
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_EQ(changed->versions_size(), 1);
  EXPECT_EQ(changed->versions(0).from_step(), 42u);
  EXPECT_EQ(changed->versions(0).origin(), "by hand");
  // Numbers are the daemon's.
  EXPECT_EQ(json::parse(changed->json()).at("version"), 1);
}

TEST_F(RunPlansTest, AfterARestartANumberMeansTheSamePlan) {
  Open(1);
  BeginCheck(SetAbout("f"));
  const std::string before = plans_->Show("run")->SerializeAsString();
  StartAgain();
  std::vector<v1::PlanChange> heard;
  const auto listening = Listen(&heard);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].version(), 1u);
  // The check begins again, against the same set.
  BeginCheck(SetAbout("f"));
  EXPECT_EQ(heard.size(), 1u);
  EXPECT_EQ(plans_->Show("run")->SerializeAsString(), before);
  ASSERT_TRUE(plans_->ChangeUntrusted("run", kByHand).ok());
  EXPECT_EQ(heard.back().version(), 2u);
}

TEST_F(RunPlansTest, AChangeThatTheDiskTakesLateIsHeardOfThen) {
  Open(1);
  BeginCheck(SetAbout("f"));
  auto stalling = std::make_unique<StallingStore>(std::move(store_));
  StallingStore* const disk = stalling.get();
  store_ = std::move(stalling);
  Renew();
  std::vector<v1::PlanChange> heard;
  const auto listening = Listen(&heard);
  ASSERT_EQ(heard.size(), 1u);
  disk->Stall();
  for (int i = 0; i < 2; ++i) {
    const auto late = plans_->ChangeUntrusted("run", kByHand);
    EXPECT_TRUE(absl::IsUnavailable(late.status())) << late.status();
  }
  // What somebody asked for stays, also on its way.
  BeginCheck(SetAbout("g"));
  EXPECT_EQ(heard.size(), 1u);
  ASSERT_TRUE(disk->GoOn().ok());
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_EQ(heard[1].version(), 2u);
  EXPECT_EQ(heard[2].version(), 3u);
  EXPECT_EQ(plans_->Show("run")->versions_size(), 3);
}

TEST_F(RunPlansTest, AnotherSetBringsAnotherPlanUnlessSomebodyAskedForOne) {
  Open(1);
  BeginCheck(SetAbout("f"));
  BeginCheck(SetAbout("g"));
  EXPECT_EQ(plans_->Show("run")->versions_size(), 2);
  ASSERT_TRUE(plans_->ChangeUntrusted("run", kByHand).ok());
  BeginCheck(SetAbout("h"));
  EXPECT_EQ(plans_->Show("run")->versions_size(), 3);
}

stored::Zoom ZoomOn(const std::vector<std::string>& violations) {
  stored::Zoom zoom;
  zoom.mutable_violations()->Assign(violations.begin(), violations.end());
  return zoom;
}

TEST_F(RunPlansTest, AZoomIsAddedToThePlanThatHoldsOnceForAnIncident) {
  Open(1);
  BeginCheck(SetAbout("f"));
  std::vector<v1::PlanChange> heard;
  auto listening = Listen(&heard);
  const json steps = {{"steps", 8}};
  ASSERT_TRUE(plans_->ZoomIn("run", ZoomOn({"v1", "v2"}), steps).ok());
  ASSERT_EQ(heard.size(), 2u);
  const json plan = json::parse(heard[1].plan());
  EXPECT_EQ(plan.at("zoom"), steps);
  EXPECT_EQ(plan.at("calls").at(0).at("function"), "f");
  // Another violation leads the same incident now.
  ASSERT_TRUE(plans_->ZoomIn("run", ZoomOn({"v2"}), steps).ok());
  EXPECT_EQ(heard.size(), 2u);
  // The zoom of another incident stands in place of the first.
  ASSERT_TRUE(plans_->ZoomIn("run", ZoomOn({"v3"}), {{"steps", 4}}).ok());
  EXPECT_EQ(json::parse(heard.back().plan()).at("zoom").at("steps"), 4);
  EXPECT_EQ(plans_->Zooms("run")->size(), 2u);
  // The check begins again, against the same set: it says what holds already.
  listening.reset();
  StartAgain();
  BeginCheck(SetAbout("f"));
  EXPECT_EQ(plans_->Show("run")->versions_size(), 3);
}

TEST_F(RunPlansTest, ARunIsZoomedInOnSoOften) {
  Open(1);
  BeginCheck(SetAbout("f"));
  for (int i = 0; i < 2 * RunPlans::kMaxZooms; ++i) {
    const std::string id = "v" + std::to_string(i);
    ASSERT_TRUE(plans_->ZoomIn("run", ZoomOn({id}), {{"steps", 1}}).ok());
  }
  EXPECT_EQ(plans_->Zooms("run")->size(), RunPlans::kMaxZooms);
}

TEST_F(RunPlansTest, NoZoomWhereNobodyWouldRecordIt) {
  const json steps = {{"steps", 8}};
  EXPECT_TRUE(plans_->ZoomIn("no such run", ZoomOn({"v"}), steps).ok());
  EXPECT_TRUE(plans_->Zooms("no such run")->empty());
  const StreamId stream = Open(1);
  // Nothing is known of the plan that it records under.
  EXPECT_TRUE(plans_->ZoomIn("run", ZoomOn({"v"}), steps).ok());
  BeginCheck(SetAbout("f"));
  End(stream, v1::END_KIND_CLEAN);
  Pass(absl::Seconds(5));
  EXPECT_TRUE(plans_->ZoomIn("run", ZoomOn({"v"}), steps).ok());
  EXPECT_TRUE(plans_->Zooms("run")->empty());
}

TEST_F(RunPlansTest, ReferencesAndEndedRunsKeepTheirs) {
  v1::Hello hello = MakeHello(1);
  hello.set_role(v1::RUN_ROLE_REFERENCE);
  ASSERT_TRUE(registry_->Open(hello, nullptr).ok());
  BeginCheck(SetAbout("f"));
  EXPECT_EQ(plans_->Show("run")->versions_size(), 0);
}

TEST_F(RunPlansTest, WhatCannotBeIsRefusedWithItsReason) {
  EXPECT_EQ(plans_->Show("run").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(plans_->ChangeUntrusted("run", kByHand).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Listen(nullptr), nullptr);
  const StreamId stream = Open(1);
  const auto bad = plans_->ChangeUntrusted(
      "run", R"({"format": 1, "calls": [{"function": 3}]})");
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()),
              HasSubstr("calls[0].function"));
  End(stream, v1::END_KIND_CLEAN);
  Pass(absl::Seconds(5));
  EXPECT_EQ(plans_->ChangeUntrusted("run", kByHand).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RunPlansTest, TheNumberOfChangesIsBounded) {
  Open(1);
  absl::Status status;
  int changes = 0;
  while (status.ok() && changes < 1000) {
    status = plans_->ChangeUntrusted("run", kByHand).status();
    changes += status.ok();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(plans_->Show("run")->versions_size(), changes);
}

TEST_F(RunPlansTest, RanksSayWhatTheyRecordUnder) {
  const StreamId stream = Open(1);
  AddPlace(stream, 0, 1);
  EXPECT_EQ(plans_->Show("run")->ranks_size(), 0);
  BatchFacts facts;
  facts.plan_version = 1;
  Add(stream, facts);
  ASSERT_EQ(plans_->Show("run")->ranks_size(), 1);
  EXPECT_FALSE(plans_->Show("run")->ranks(0).has_after_step());
  AddStep(stream, 4);
  facts.plan_version = 2;
  facts.last_step = 6;  // in the same batch, behind the mark
  Add(stream, facts);
  StartAgain();
  const v1::RankPlan rank = plans_->Show("run")->ranks(0);
  EXPECT_EQ(rank.rank(), 0);
  EXPECT_EQ(rank.version(), 2u);
  EXPECT_EQ(rank.after_step(), 4u);
}

TEST_F(RunPlansTest, NothingIsLeftOfADeletedRun) {
  Open(1);
  BeginCheck(SetAbout("f"));
  const uint64_t number = *registry_->NumberOf("run");
  WriteSet deletions;
  DeleteAllOf(number, &deletions);
  ASSERT_TRUE(store_->Erase(deletions).ok());
  size_t left = 0;
  ASSERT_TRUE(store_
                  ->Scan(Table::kRuns, PlanKey(0, 0), PlanKey(number + 1, 0),
                         [&](std::string_view, std::string_view) {
                           ++left;
                           return true;
                         })
                  .ok());
  EXPECT_EQ(left, 0u);
}

}  // namespace
}  // namespace traincheck::server
