#include "server/sets/set_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "server/store/forwarding_store_for_testing.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::ElementsAre;

class SetCatalogTest : public testing::Test {
 protected:
  SetCatalogTest()
      : dir_(testing::TempDir() + "/sets-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    store_ = *OpenRocksdbStore(dir_);
    catalog_ = std::make_unique<SetCatalog>(store_.get());
  }

  uint32_t Save(const std::string& name, const std::string& run) {
    InvariantSet set;
    set.name = name;
    set.runs = {run};
    const auto saved = catalog_->Save(set);
    EXPECT_TRUE(saved.ok()) << saved.status();
    return saved.ok() ? saved->version() : 0;
  }

  const std::string dir_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SetCatalog> catalog_;
};

TEST_F(SetCatalogTest, SavingAgainMakesTheNextVersionAndKeepsTheOld) {
  EXPECT_EQ(Save("rules", "run-1"), 1u);
  EXPECT_EQ(Save("rules", "run-2"), 2u);
  EXPECT_EQ(Save("rules-b", "run-3"), 1u);
  EXPECT_THAT(catalog_->Load("rules")->runs, ElementsAre("run-2"));
  EXPECT_THAT(catalog_->Load("rules@1")->runs, ElementsAre("run-1"));
  EXPECT_EQ(catalog_->Load("rules@2")->version, 2u);
  const auto list = *catalog_->List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name(), "rules");
  EXPECT_EQ(list[0].version(), 2u);
  EXPECT_EQ(list[1].name(), "rules-b");
}

TEST_F(SetCatalogTest, ASetThatTheDiskTakesLateIsThereFromThenOn) {
  auto stalling = std::make_unique<StallingStore>(std::move(store_));
  StallingStore* const disk = stalling.get();
  store_ = std::move(stalling);
  catalog_ = std::make_unique<SetCatalog>(store_.get());
  std::vector<std::string> heard;
  catalog_->SetObserver([&](const std::string& set) { heard.push_back(set); });
  disk->Stall();
  for (const char* run : {"run-1", "run-2"}) {
    InvariantSet set;
    set.name = "rules";
    set.runs = {run};
    EXPECT_TRUE(absl::IsUnavailable(catalog_->Save(set).status()));
  }
  EXPECT_THAT(heard, testing::IsEmpty());
  ASSERT_TRUE(disk->GoOn().ok());
  // Who waits for the set hears of it, and each version is there.
  EXPECT_THAT(heard, ElementsAre("rules", "rules"));
  EXPECT_THAT(catalog_->Load("rules@1")->runs, ElementsAre("run-1"));
  EXPECT_THAT(catalog_->Load("rules@2")->runs, ElementsAre("run-2"));
  EXPECT_EQ(catalog_->NewestVersion("rules"), 2u);
}

TEST_F(SetCatalogTest, ASetIsWrittenByItsOwnerAndByAdministrators) {
  InvariantSet set;
  set.name = "rules";
  EXPECT_TRUE(catalog_->Save(set, nullptr, "alice").ok());
  EXPECT_TRUE(
      absl::IsPermissionDenied(catalog_->Save(set, nullptr, "bob").status()));
  EXPECT_TRUE(
      absl::IsPermissionDenied(catalog_->Delete("rules", "bob").status()));
  EXPECT_FALSE(catalog_->CheckOwner("rules", "bob").ok());
  EXPECT_TRUE(catalog_->CheckOwner("other", "bob").ok());
  // An administrator's version stays alice's.
  EXPECT_EQ(catalog_->Save(set)->owner(), "alice");
  EXPECT_EQ(catalog_->Save(set, nullptr, "alice")->version(), 3u);
  // And what is the administrators' is theirs alone.
  Save("builtin", "");
  EXPECT_FALSE(catalog_->CheckOwner("builtin", "alice").ok());
  EXPECT_TRUE(catalog_->Delete("rules", "alice").ok());
  EXPECT_TRUE(catalog_->CheckOwner("rules", "bob").ok());
}

TEST_F(SetCatalogTest, WhatIsMissingIsNotFound) {
  Save("rules", "run");
  EXPECT_TRUE(absl::IsNotFound(catalog_->Load("rule").status()));
  EXPECT_TRUE(absl::IsNotFound(catalog_->Detail("rules", 2).status()));
  EXPECT_TRUE(absl::IsNotFound(catalog_->FindInvariant("id").status()));
}

TEST_F(SetCatalogTest, ASetIsNamedWithOrWithoutItsVersion) {
  Save("rules", "run-1");
  Save("rules", "run-2");
  EXPECT_THAT(catalog_->Load("rules@1")->runs, ElementsAre("run-1"));
  EXPECT_THAT(catalog_->Load("rules@2")->runs, ElementsAre("run-2"));
  EXPECT_THAT(catalog_->Load("rules")->runs, ElementsAre("run-2"));
  EXPECT_EQ(catalog_->Detail("rules@1")->summary().version(), 1u);
  EXPECT_TRUE(absl::IsNotFound(catalog_->Load("rules@3").status()));
  for (const char* bad : {"rules@", "rules@0", "rules@-1", "rules@1x"}) {
    const absl::Status status = catalog_->Load(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find(bad), std::string::npos);
  }
}

TEST_F(SetCatalogTest, SeveralSetsAreOneWhoseNameHasTheirVersions) {
  Save("rules", "run-1");
  Save("more", "run-2");
  const auto both = catalog_->Load("rules,more");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(both->runs, ElementsAre("run-1", "run-2"));
  EXPECT_EQ(ReferenceTo(*both), "rules@1,more@1");
  Save("more", "run-3");
  EXPECT_THAT(catalog_->Load("rules,more")->runs,
              ElementsAre("run-1", "run-3"));
  EXPECT_THAT(catalog_->Load(ReferenceTo(*both))->runs,
              ElementsAre("run-1", "run-2"));
  const absl::Status missing = catalog_->Load("rules,none").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_NE(missing.message().find("\"none\""), std::string::npos);
}

TEST(SetName, IsShortAndPlain) {
  EXPECT_TRUE(CheckSetName("A.b_c-9").ok());
  EXPECT_TRUE(CheckSetName(std::string(64, 'x')).ok());
  EXPECT_FALSE(CheckSetName("builtin").ok());
  for (const std::string& bad :
       {std::string(), std::string(65, 'x'), std::string("a b"),
        std::string("a/b"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(CheckSetName(bad).ok()) << bad;
  }
}

TEST_F(SetCatalogTest, ADeletedSetIsGoneAndItsVersionsAreNotGivenAgain) {
  Save("rules", "run-1");
  Save("rules", "run-2");
  Save("rules", "run-3");
  Save("rules-b", "run-4");
  EXPECT_THAT(*catalog_->Delete("rules@2"), ElementsAre(2u));
  EXPECT_TRUE(absl::IsNotFound(catalog_->Load("rules@2").status()));
  EXPECT_TRUE(absl::IsNotFound(catalog_->Delete("rules@2").status()));
  EXPECT_THAT(catalog_->Load("rules")->runs, ElementsAre("run-3"));
  EXPECT_THAT(*catalog_->Delete("rules"), ElementsAre(1u, 3u));
  EXPECT_TRUE(absl::IsNotFound(catalog_->Load("rules").status()));
  EXPECT_EQ(catalog_->List()->size(), 1u);
  EXPECT_EQ(Save("rules", "run-5"), 4u);
  // Also where the newest one alone is deleted.
  EXPECT_THAT(*catalog_->Delete("rules@4"), ElementsAre(4u));
  EXPECT_EQ(Save("rules", "run-6"), 5u);
}

TEST_F(SetCatalogTest, TheBuiltInSetIsNotDeleted) {
  EXPECT_TRUE(absl::IsInvalidArgument(catalog_->Delete("builtin").status()));
}

}  // namespace
}  // namespace traincheck::server
