#include "server/sets/built_in_sets.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "invariants/library/library.h"
#include "invariants/sets/set_ref.h"
#include "server/store/keys.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

class BuiltInSetsTest : public testing::Test {
 protected:
  BuiltInSetsTest() : dir_(testing::TempDir() + "/built-in-sets") {
    std::filesystem::remove_all(dir_);
    store_ = *OpenRocksdbStore(dir_);
    catalog_ = std::make_unique<SetCatalog>(store_.get());
  }

  const std::string dir_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SetCatalog> catalog_;
};

TEST_F(BuiltInSetsTest, AStoreHasTheRulesOfThisBuildOnce) {
  for (int start = 0; start < 2; ++start) {
    ASSERT_TRUE(SaveBuiltInRules(catalog_.get()).ok());
    const auto stored = catalog_->Load(kBuiltInSet);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->version, 1u);
    EXPECT_EQ(stored->invariants.size(), BuiltInRules()->invariants.size());
  }
}

TEST_F(BuiltInSetsTest, OtherRulesOfAnOlderBuildAreAVersionThatStays) {
  InvariantSet older = *BuiltInRules();
  older.invariants.pop_back();
  const size_t count = older.invariants.size();
  ASSERT_TRUE(catalog_->Save(std::move(older)).ok());
  ASSERT_TRUE(SaveBuiltInRules(catalog_.get()).ok());
  EXPECT_EQ(catalog_->Load("builtin")->version, 2u);
  EXPECT_EQ(catalog_->Load("builtin")->invariants.size(), count + 1);
  EXPECT_EQ(catalog_->Load("builtin@1")->invariants.size(), count);
}

TEST_F(BuiltInSetsTest, OtherWordsForPeopleAreAVersionToo) {
  InvariantSet older = *BuiltInRules();
  older.invariants[0].origin["fix"] = "Do something.";
  ASSERT_TRUE(catalog_->Save(std::move(older)).ok());
  ASSERT_TRUE(SaveBuiltInRules(catalog_.get()).ok());
  EXPECT_EQ(catalog_->Load("builtin")->version, 2u);
}

TEST_F(BuiltInSetsTest, AVersionThatThisBuildCannotReadIsFollowedByOneItCan) {
  v1::SetDetail newer;
  newer.mutable_summary()->set_name(kBuiltInSet);
  newer.mutable_summary()->set_version(1);
  newer.set_json("{}");
  WriteSet writes;
  writes.Put(Table::kSets, SetKey(kBuiltInSet, 1), newer.SerializeAsString());
  ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Seconds(10)).ok());
  ASSERT_FALSE(catalog_->Load("builtin").ok());
  ASSERT_TRUE(SaveBuiltInRules(catalog_.get()).ok());
  EXPECT_EQ(catalog_->Load("builtin")->version, 2u);
}

}  // namespace
}  // namespace traincheck::server
