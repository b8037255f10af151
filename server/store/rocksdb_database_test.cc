#include "server/store/rocksdb_database.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "rocksdb/write_batch.h"

namespace traincheck::server {
namespace {

size_t OpenTables() {
  size_t tables = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto path = std::filesystem::read_symlink(entry.path(), gone);
    if (path.extension() == ".sst" || path.extension() == ".blob") ++tables;
  }
  return tables;
}

class RocksdbDatabaseTest : public testing::Test {
 protected:
  RocksdbDatabaseTest() {
    const std::string path =
        testing::TempDir() + "/database-" +
        testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    rocksdb::Status status;
    database_ = RocksdbDatabase::Open(
        path, RocksdbDatabase::DamagedLog::kRefuse, &status);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  rocksdb::ColumnFamilyHandle* batches() const {
    return database_->family(Table::kBatches);
  }
  // Writes one file of `values` small values.
  void AddFile(int values) {
    rocksdb::WriteBatch batch;
    for (int i = 0; i < values; ++i) {
      batch.Put(batches(), std::to_string(next_key_++), std::string(500, 'v'));
    }
    ASSERT_TRUE(database_->db().Write({}, &batch).ok());
    ASSERT_TRUE(database_->db().Flush({}, batches()).ok());
  }
  uint64_t Number(const std::string& property) const {
    uint64_t number = 0;
    EXPECT_TRUE(database_->db().GetIntProperty(batches(), property, &number));
    return number;
  }

  int next_key_ = 1'000'000;
  std::unique_ptr<RocksdbDatabase> database_;
};

TEST_F(RocksdbDatabaseTest, FilesOnDiskTakeNoDescriptorForEver) {
  ASSERT_TRUE(
      database_->db()
          .SetOptions(batches(), {{"disable_auto_compactions", "1"},
                                  {"level0_stop_writes_trigger", "1000"},
                                  {"level0_slowdown_writes_trigger", "1000"}})
          .ok());
  for (int i = 0; i < RocksdbDatabase::kMaxOpenFiles + 50; ++i) AddFile(1);
  std::vector<rocksdb::LiveFileMetaData> files;
  database_->db().GetLiveFilesMetaData(&files);
  EXPECT_GT(files.size(), static_cast<size_t>(RocksdbDatabase::kMaxOpenFiles));
  EXPECT_GT(OpenTables(), 0u);
  EXPECT_LT(OpenTables(), static_cast<size_t>(RocksdbDatabase::kMaxOpenFiles));
}

TEST_F(RocksdbDatabaseTest, IndexesLieInTheOneCache) {
  for (int i = 0; i < 4; ++i) AddFile(8'000);
  std::unique_ptr<rocksdb::Iterator> at(
      database_->db().NewIterator({}, batches()));
  int values = 0;
  for (at->SeekToFirst(); at->Valid(); at->Next()) ++values;
  EXPECT_EQ(values, 32'000);
  // 16 MB of values have an index of 100 KB.
  EXPECT_LT(Number("rocksdb.estimate-table-readers-mem"), 50'000u);
  for (const Table table :
       {Table::kRuns, Table::kBatches, Table::kViolations}) {
    uint64_t capacity = 0;
    EXPECT_TRUE(database_->db().GetIntProperty(
        database_->family(table), "rocksdb.block-cache-capacity", &capacity));
    EXPECT_EQ(capacity, RocksdbDatabase::kBlockCacheBytes);
  }
  uint64_t usage_of_runs = 0;  // the same one
  EXPECT_TRUE(database_->db().GetIntProperty(database_->family(Table::kRuns),
                                             "rocksdb.block-cache-usage",
                                             &usage_of_runs));
  EXPECT_GT(usage_of_runs, 100'000u);
}

}  // namespace
}  // namespace traincheck::server
