#include "server/sets/rule_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "invariants/sets/invariant_for_testing.h"
#include "server/store/forwarding_store_for_testing.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RulePolicyTest : public testing::Test {
 protected:
  RulePolicyTest()
      : dir_(testing::TempDir() + "/policy-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    Open();
  }
  void Open() {
    policy_.reset();
    sets_.reset();
    if (store_ != nullptr) store_->Close();
    store_.reset();
    store_ = std::make_unique<OvertakenStore>(*OpenRocksdbStore(dir_));
    sets_ = std::make_unique<SetCatalog>(store_.get());
    policy_ = *RulePolicy::Load(store_.get(), sets_.get());
  }
  // A set with one rule, whose id is returned.
  std::string Save(const std::string& name, const std::string& api) {
    InvariantSet set;
    set.name = name;
    set.invariants.push_back(NewInvariant(
        "EventContain",
        {{"window", {{"kind", "call"}, {"function", {{"name", api}}}}},
         {"event",
          {{"kind", "call"},
           {"function", {{"category", "backward"}}},
           {"binding", "any"}}}}));
    const auto saved = sets_->Save(set);
    EXPECT_TRUE(saved.ok()) << saved.status();
    return set.invariants[0].id;
  }

  const std::string dir_;
  std::unique_ptr<OvertakenStore> store_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<RulePolicy> policy_;
};

TEST_F(RulePolicyTest, WithoutDecisionsRunsAreCheckedAgainstWhatTheyAskFor) {
  EXPECT_EQ(policy_->SelectionFor("resnet", "", ""), "");
  EXPECT_EQ(policy_->SelectionFor("resnet", "", "builtin,a@2"), "builtin,a@2");
  EXPECT_EQ(policy_->SelectionFor("resnet", "", "a,,b"), "a,,b");
}

TEST_F(RulePolicyTest, ADisabledRuleIsLeftOutOfEverySelection) {
  const std::string rule = Save("rules", "a");
  const auto disabled = policy_->Disable(rule, "alarms on purpose");
  ASSERT_TRUE(disabled.ok()) << disabled.status();
  EXPECT_FALSE(disabled->text().empty());
  EXPECT_EQ(policy_->SelectionFor("resnet", "", "rules"), "rules@1,-" + rule);
  EXPECT_EQ(policy_->AsDecided("", "rules"), "rules,-" + rule);
  EXPECT_EQ(policy_->SelectionFor("resnet", "", ""), "");
  EXPECT_TRUE(sets_->Load(policy_->SelectionFor("resnet", "", "rules"))
                  ->invariants.empty());
  Open();
  ASSERT_EQ(policy_->Disabled().size(), 1u);
  EXPECT_EQ(policy_->Disabled()[0].reason(), "alarms on purpose");
  ASSERT_TRUE(policy_->Enable(rule).ok());
  EXPECT_EQ(policy_->SelectionFor("resnet", "", "rules"), "rules@1");
  EXPECT_TRUE(absl::IsNotFound(policy_->Enable(rule).status()));
  Open();
  EXPECT_TRUE(policy_->Disabled().empty());
}

TEST_F(RulePolicyTest, WhatIsDemotedAdvisesItsOwnersRuns) {
  const std::string rule = Save("rules", "a");
  v1::RuleRecord record;
  record.set_rule(rule);
  ASSERT_TRUE(policy_->Demote("ada", {record}).ok());
  Open();
  EXPECT_EQ(policy_->SelectionFor("resnet", "ada", "rules"),
            "rules@1,?" + rule);
  EXPECT_EQ(policy_->AsDecided("ada", "rules"), "rules,?" + rule);
  for (const char* other : {"", "bob"}) {
    EXPECT_EQ(policy_->SelectionFor("resnet", other, "rules"), "rules@1");
  }
  const auto set = sets_->Load(policy_->AsDecided("ada", "rules"));
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->invariants.size(), 1u);
  EXPECT_EQ(set->invariants[0].origin.value("grade", ""), "advice");
  EXPECT_EQ(set->invariants[0].id, rule);
  ASSERT_TRUE(policy_->Demote("ada", {}).ok());
  EXPECT_EQ(policy_->SelectionFor("resnet", "ada", "rules"), "rules@1");
}

TEST_F(RulePolicyTest, ASetHasTheVersionThatIsTheNewestThen) {
  EXPECT_EQ(policy_->SelectionFor("r", "", "rules,others"), "rules,others");
  Save("rules", "a");
  EXPECT_EQ(policy_->SelectionFor("r", "", "rules,others"), "rules@1,others");
  Save("rules", "b");
  EXPECT_EQ(policy_->SelectionFor("r", "", "rules"), "rules@2");
  ASSERT_TRUE(sets_->Delete("rules@2").ok());
  EXPECT_EQ(policy_->SelectionFor("r", "", "rules"), "rules@1");
}

TEST_F(RulePolicyTest, RunsBeginWhileADecisionIsOnItsWayToDisk) {
  const std::string rule = Save("rules", "a");
  store_->ReadBeforeWrites([this] { policy_->SelectionFor("r", "ada", ""); });
  EXPECT_TRUE(policy_->Disable(rule, "why").ok());
  EXPECT_TRUE(policy_->Enable(rule).ok());
  EXPECT_TRUE(policy_->Deploy("r", {"rules"}).ok());
  v1::RuleRecord record;
  record.set_rule(rule);
  EXPECT_TRUE(policy_->Demote("ada", {record}).ok());
}

TEST_F(RulePolicyTest, ADecisionThatTheDiskTakesLateHoldsFromThenOn) {
  const std::string a = Save("rules", "a");
  const std::string b = Save("others", "b");
  ASSERT_TRUE(policy_->Disable(a, "why").ok());
  v1::RuleRecord record;
  record.set_rule(a);
  store_->Stall();
  EXPECT_TRUE(absl::IsUnavailable(policy_->Enable(a).status()));
  EXPECT_TRUE(absl::IsUnavailable(policy_->Disable(b, "why").status()));
  EXPECT_TRUE(absl::IsUnavailable(policy_->Deploy("r", {"others"}).status()));
  EXPECT_TRUE(absl::IsUnavailable(policy_->Demote("ada", {record})));
  const auto selection = [this] {
    return policy_->SelectionFor("r", "ada", "rules");
  };
  EXPECT_EQ(selection(), "rules@1,-" + a);
  ASSERT_TRUE(store_->GoOn().ok());
  const std::string late = selection();
  EXPECT_EQ(late, "rules@1,others@1,-" + b + ",?" + a);
  Open();
  EXPECT_EQ(selection(), late);
}

TEST_F(RulePolicyTest, DisablingNeedsARuleAndAReason) {
  const std::string rule = Save("rules", "a");
  EXPECT_TRUE(absl::IsNotFound(policy_->Disable("none", "why").status()));
  for (const std::string& bad :
       {std::string(), std::string(2000, 'x'), std::string("a\x07")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(policy_->Disable(rule, bad).status()));
  }
  EXPECT_TRUE(policy_->Disabled().empty());
}

TEST_F(RulePolicyTest, WhatIsDeployedIsAddedForItsExperiment) {
  Save("rules", "a");
  Save("others", "c");
  ASSERT_TRUE(policy_->Deploy("resnet", {"rules@1", "others"}).ok());
  Open();
  EXPECT_EQ(policy_->SelectionFor("resnet", "", "builtin"),
            "builtin,rules@1,others@1");
  EXPECT_EQ(policy_->SelectionFor("resnet", "", ""), "rules@1,others@1");
  // Whoever names a version has it.
  EXPECT_EQ(policy_->SelectionFor("resnet", "", "rules@2"), "rules@2,others@1");
  EXPECT_EQ(policy_->SelectionFor("vgg", "", "builtin"), "builtin");
  EXPECT_THAT(policy_->DeployedFor("rules"), ElementsAre("resnet"));
  ASSERT_TRUE(policy_->Deploy("resnet", {}).ok());
  EXPECT_EQ(policy_->SelectionFor("resnet", "", ""), "");
  EXPECT_TRUE(policy_->Deployments().empty());
}

TEST_F(RulePolicyTest, OnlySetsThatAreThereAreDeployed) {
  Save("rules", "a");
  const auto missing = policy_->Deploy("resnet", {"rules", "rule"});
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(missing.status().message(), HasSubstr("rule"));
  EXPECT_TRUE(absl::IsNotFound(policy_->Deploy("r", {"rules@2"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(policy_->Deploy("", {"rules"}).status()));
  EXPECT_TRUE(policy_->Deployments().empty());
}

}  // namespace
}  // namespace traincheck::server
