#include "server/sets/set_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "server/sets/set_catalog.h"
#include "server/store/forwarding_store_for_testing.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::ElementsAre;

class CountingStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  absl::Status Scan(Table table, const std::string& from, const std::string& to,
                    const Visitor& visitor) const override {
    return ForwardingStore::Scan(
        table, from, to, [&](std::string_view key, std::string_view value) {
          if (table == Table::kSets) ++sets_read_;
          return visitor(key, value);
        });
  }
  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const override {
    if (table == Table::kSets) ++sets_read_;
    return ForwardingStore::Get(table, key);
  }
  int TakeSetsRead() { return std::exchange(sets_read_, 0); }

 private:
  mutable int sets_read_ = 0;
};

class SetIndexTest : public testing::Test {
 protected:
  SetIndexTest()
      : dir_(testing::TempDir() + "/set-index-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    store_ = std::make_unique<CountingStore>(*OpenRocksdbStore(dir_));
    catalog_ = std::make_unique<SetCatalog>(store_.get());
  }

  void Save(const std::string& name, const std::string& run) {
    InvariantSet set;
    set.name = name;
    set.runs = {run};
    ASSERT_TRUE(catalog_->Save(set, nullptr, "alice").ok());
  }
  // "NAME@VERSION OWNER RUN" of the newest versions.
  static std::vector<std::string> Shown(
      const absl::StatusOr<std::vector<v1::SetSummary>>& sets) {
    std::vector<std::string> shown;
    for (const v1::SetSummary& set : *sets) {
      shown.push_back(set.name() + "@" + std::to_string(set.version()) + " " +
                      set.owner() + " " + set.runs(0));
    }
    return shown;
  }

  const std::string dir_;
  std::unique_ptr<CountingStore> store_;
  std::unique_ptr<SetCatalog> catalog_;
};

TEST_F(SetIndexTest, ListsReadNoSets) {
  for (int i = 0; i < 9; ++i) Save("rules", "run-" + std::to_string(i));
  Save("more", "run");
  store_->TakeSetsRead();
  for (int i = 0; i < 9; ++i) {
    EXPECT_THAT(Shown(catalog_->List()),
                ElementsAre("more@1 alice run", "rules@9 alice run-8"));
    EXPECT_EQ(catalog_->NewestVersion("rules"), 9u);
    EXPECT_FALSE(catalog_->CheckOwner("rules", "bob").ok());
  }
  EXPECT_EQ(store_->TakeSetsRead(), 0);
  // The newest of nine versions, and nothing else.
  EXPECT_EQ(catalog_->Load("rules")->version, 9u);
  EXPECT_EQ(store_->TakeSetsRead(), 1);
  EXPECT_TRUE(absl::IsNotFound(catalog_->FindInvariant("none").status()));
  EXPECT_EQ(store_->TakeSetsRead(), 2);
}

TEST_F(SetIndexTest, IsWhatTheStoreHoldsAfterEachChange) {
  const auto expect_same = [&](const std::vector<std::string>& sets) {
    const SetIndex fresh(store_.get());
    EXPECT_EQ(Shown(catalog_->List()), sets);
    EXPECT_EQ(Shown(fresh.Newest()), sets);
    for (const char* name : {"rules", "more", "none"}) {
      const auto newest = *fresh.NewestOf(name);
      EXPECT_EQ(catalog_->NewestVersion(name),
                newest.has_value() ? newest->version() : 0);
    }
  };
  expect_same({});
  Save("rules", "a");
  Save("rules", "b");
  Save("more", "c");
  expect_same({"more@1 alice c", "rules@2 alice b"});
  ASSERT_TRUE(catalog_->Delete("rules@2").ok());
  expect_same({"more@1 alice c", "rules@1 alice a"});
  // A number is not given twice.
  Save("rules", "d");
  expect_same({"more@1 alice c", "rules@3 alice d"});
  EXPECT_THAT(*catalog_->Delete("rules"), ElementsAre(1, 3));
  ASSERT_TRUE(catalog_->Delete("more").ok());
  expect_same({});
  Save("rules", "e");
  expect_same({"rules@4 alice e"});
}

TEST_F(SetIndexTest, DamageIsAnErrorUntilItIsGone) {
  WriteSet writes;
  writes.Put(Table::kSets, "key", "\xff");
  ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  EXPECT_TRUE(absl::IsDataLoss(catalog_->List().status()));
  EXPECT_EQ(catalog_->NewestVersion("rules"), 0u);
  WriteSet deletes;
  deletes.Delete(Table::kSets, "key");
  ASSERT_TRUE(store_->WriteAndWait(std::move(deletes), absl::Minutes(1)).ok());
  EXPECT_TRUE(catalog_->List()->empty());
}

}  // namespace
}  // namespace traincheck::server
