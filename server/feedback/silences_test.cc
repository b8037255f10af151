#include "server/feedback/silences.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "server/store/forwarding_store_for_testing.h"
#include "server/store/keys.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

v1::Violation Violation(const std::vector<std::string>& variables = {}) {
  v1::Violation violation;
  violation.set_invariant_id("rule");
  violation.set_relation("Consistent");
  violation.mutable_variables()->Assign(variables.begin(), variables.end());
  return violation;
}

v1::Silence OfVariables(const std::string& pattern) {
  v1::Silence silence;
  silence.set_variable(pattern);
  return silence;
}

TEST(Covers, EverythingThatIsNamedMustFit) {
  v1::Silence silence;
  silence.set_rule("rule");
  EXPECT_TRUE(Covers(silence, Violation(), "resnet"));
  silence.set_relation("Consistent");
  silence.set_experiment("resnet");
  EXPECT_TRUE(Covers(silence, Violation(), "resnet"));
  EXPECT_FALSE(Covers(silence, Violation(), "bert"));
  silence.set_relation("VarAttr");
  EXPECT_FALSE(Covers(silence, Violation(), "resnet"));
}

TEST(Covers, APatternMustFitAllVariables) {
  const v1::Silence heads = OfVariables("head.*");
  EXPECT_TRUE(Covers(heads, Violation({"head.weight", "head.bias"}), ""));
  EXPECT_FALSE(Covers(heads, Violation({"head.weight", "body.weight"}), ""));
  EXPECT_FALSE(Covers(heads, Violation(), ""));
  EXPECT_TRUE(Covers(OfVariables("*"), Violation({"a/exp_avg"}), ""));
  EXPECT_TRUE(Covers(OfVariables("head.[wb]*"), Violation({"head.bias"}), ""));
}

TEST(Covers, TheStateOfAnOptimizerCountsAsItsParameters) {
  EXPECT_TRUE(Covers(OfVariables("head.weight"),
                     Violation({"head.weight/exp_avg"}), ""));
  EXPECT_TRUE(
      Covers(OfVariables("*/exp_avg"), Violation({"head.weight/exp_avg"}), ""));
  EXPECT_FALSE(
      Covers(OfVariables("*/exp_avg"), Violation({"head.weight"}), ""));
}

class SilencesTest : public testing::Test {
 protected:
  SilencesTest()
      : dir_(testing::TempDir() + "/silences-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    store_ = std::make_unique<OvertakenStore>(*OpenRocksdbStore(dir_));
    sets_ = std::make_unique<SetCatalog>(store_.get());
    Load();
  }
  void Load() {
    silences_ =
        *Silences::Load(store_.get(), sets_.get(), [&] { return now_; });
  }
  std::string Add(absl::Duration length) {
    v1::Silence silence;
    silence.set_experiment("resnet");
    silence.set_comment("known");
    if (length != absl::InfiniteDuration()) {
      silence.set_until_unix_ns(absl::ToUnixNanos(now_ + length));
    }
    const auto added = silences_->AddUntrusted(silence);
    EXPECT_TRUE(added.ok()) << added.status();
    return added.ok() ? added->id() : "";
  }

  const std::string dir_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::unique_ptr<OvertakenStore> store_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<Silences> silences_;
};

TEST_F(SilencesTest, WhatLastsLongestComesFirstAndWhatHasEndedNotAtAll) {
  const std::string hour = Add(absl::Hours(1));
  const std::string forever = Add(absl::InfiniteDuration());
  const std::string day = Add(absl::Hours(24));
  ASSERT_EQ(silences_->Active().size(), 3u);
  EXPECT_EQ(silences_->Active()[0].id(), forever);
  EXPECT_EQ(silences_->Active()[1].id(), day);
  now_ += absl::Hours(2);
  EXPECT_EQ(silences_->Active().size(), 2u);
  EXPECT_EQ(silences_->List().size(), 3u);
}

TEST_F(SilencesTest, AreThereAgainWhenTheyAreLoaded) {
  const std::string id = Add(absl::Hours(1));
  Load();
  ASSERT_EQ(silences_->List().size(), 1u);
  EXPECT_EQ(silences_->List()[0].id(), id);
  ASSERT_TRUE(silences_->Remove(id).ok());
  Load();
  EXPECT_TRUE(silences_->List().empty());
}

TEST_F(SilencesTest, AreReadWhileOneIsOnItsWayToDisk) {
  store_->ReadBeforeWrites([this] { silences_->Active(); });
  const std::string id = Add(absl::Hours(1));
  EXPECT_TRUE(silences_->Remove(id).ok());
}

TEST_F(SilencesTest, AChangeThatTheDiskTakesLateHoldsFromThenOn) {
  const std::string old = Add(absl::Hours(1));
  v1::Silence silence;
  silence.set_experiment("bert");
  silence.set_comment("known");
  store_->Stall();
  EXPECT_TRUE(absl::IsUnavailable(silences_->Remove(old).status()));
  EXPECT_TRUE(absl::IsUnavailable(silences_->AddUntrusted(silence).status()));
  ASSERT_EQ(silences_->List().size(), 1u);
  EXPECT_EQ(silences_->List()[0].id(), old);
  ASSERT_TRUE(store_->GoOn().ok());
  // As the next daemon has it.
  ASSERT_EQ(silences_->List().size(), 1u);
  EXPECT_EQ(silences_->List()[0].experiment(), "bert");
  Load();
  ASSERT_EQ(silences_->List().size(), 1u);
  EXPECT_EQ(silences_->List()[0].experiment(), "bert");
}

TEST_F(SilencesTest, ADamagedOneIsNamed) {
  WriteSet writes;
  writes.Put(Table::kMeta, std::string(kSilencePrefix) + "abc", "\xff");
  ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  const auto loaded = Silences::Load(store_.get(), sets_.get());
  EXPECT_EQ(loaded.status().message(),
            "a stored decision does not parse: silence/abc");
}

TEST_F(SilencesTest, SoManyAndNoMore) {
  WriteSet writes;
  for (int i = 0; i < 1000; ++i) {
    v1::Silence silence;
    silence.set_id(std::to_string(i));
    writes.Put(Table::kMeta, kSilencePrefix + silence.id(),
               silence.SerializeAsString());
  }
  ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  Load();
  v1::Silence one_more;
  one_more.set_experiment("resnet");
  one_more.set_comment("known");
  EXPECT_EQ(silences_->AddUntrusted(one_more).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace traincheck::server
