#include "server/store/rocksdb_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace traincheck::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RocksdbStoreTest : public testing::Test {
 protected:
  RocksdbStoreTest()
      : dir_(testing::TempDir() + "/store-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
  }

  std::unique_ptr<Store> Open() {
    absl::StatusOr<std::unique_ptr<Store>> store = OpenRocksdbStore(dir_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::string OpenError() {
    const absl::Status status = OpenRocksdbStore(dir_).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  const std::string dir_;
};

std::vector<std::string> Keys(const Store& store, Table table,
                              const std::string& from, const std::string& to) {
  std::vector<std::string> keys;
  EXPECT_TRUE(store
                  .Scan(table, from, to,
                        [&](std::string_view key, std::string_view) {
                          keys.emplace_back(key);
                          return true;
                        })
                  .ok());
  return keys;
}

TEST_F(RocksdbStoreTest, KeepsWhatWasWrittenAndItsId) {
  std::string id;
  {
    const auto store = Open();
    id = store->id();
    WriteSet writes;
    writes.Put(Table::kRuns, "run", "1");
    writes.Put(Table::kBatches, "batch", std::string(100'000, 'b'));
    EXPECT_TRUE(store->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  }
  const auto store = Open();
  EXPECT_EQ(store->id(), id);
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(store->Get(Table::kRuns, "run")->value_or(""), "1");
  EXPECT_EQ(store->Get(Table::kBatches, "batch")->value_or("").size(),
            100'000u);
  EXPECT_FALSE(store->Get(Table::kRuns, "batch")->has_value());
}

TEST_F(RocksdbStoreTest, ScanVisitsTheRangeInOrderUntilToldToStop) {
  const auto store = Open();
  WriteSet writes;
  for (const char* key : {"c", "a", "d", "b"}) {
    writes.Put(Table::kRuns, key, "");
  }
  ASSERT_TRUE(store->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  EXPECT_THAT(Keys(*store, Table::kRuns, "a", "d"), ElementsAre("a", "b", "c"));
  int visited = 0;
  EXPECT_TRUE(store
                  ->Scan(Table::kRuns, "a", "z",
                         [&](std::string_view, std::string_view) {
                           return ++visited < 2;
                         })
                  .ok());
  EXPECT_EQ(visited, 2);
}

TEST_F(RocksdbStoreTest, WritesBecomeDurableInOrder) {
  const auto store = Open();
  std::vector<int> order;
  for (int i = 0; i < 50; ++i) {
    WriteSet writes;
    writes.Put(Table::kRuns, "key", std::to_string(i));
    store->Write(std::move(writes), [&order, i] { order.push_back(i); });
  }
  ASSERT_TRUE(store->WriteAndWait(WriteSet(), absl::Minutes(1)).ok());
  ASSERT_EQ(order.size(), 50u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(store->Get(Table::kRuns, "key")->value_or(""), "49");
}

TEST_F(RocksdbStoreTest, AFullDiskIsNamedAndReadingGoesOn) {
  Open();
  const auto store =
      *OpenRocksdbStore(dir_, {.min_free_bytes = uint64_t{1} << 60});
  WriteSet writes;
  writes.Put(Table::kRuns, "key", "value");
  const absl::Status status =
      store->WriteAndWait(std::move(writes), absl::Milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is full"));
  EXPECT_FALSE(store->Get(Table::kRuns, "key")->has_value());
}

TEST_F(RocksdbStoreTest, GoesOnOnceTheDiskTakesWritesAgain) {
  const auto store = Open();
  const auto put = [&](const std::string& key, absl::Duration patience) {
    WriteSet writes;
    writes.Put(Table::kBatches, key, std::string(100'000, 'x'));
    return store->WriteAndWait(std::move(writes), patience);
  };
  ASSERT_TRUE(put("before", absl::Minutes(1)).ok());
  // A file size limit stands for a disk that refuses.
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {.rlim_cur = 50'000, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status refused = put("during", absl::Milliseconds(500));
  limit.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("File too large"));
  ASSERT_TRUE(put("after", absl::Minutes(1)).ok());
  for (const char* key : {"before", "during", "after"}) {
    EXPECT_TRUE(store->Get(Table::kBatches, key)->has_value()) << key;
  }
}

TEST_F(RocksdbStoreTest, DirectoryIsPrivate) {
  Open();
  struct stat info;
  ASSERT_EQ(stat(dir_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(RocksdbStoreTest, RefusesWhatAnotherProcessHasOpen) {
  Open();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t other = fork();
  if (other == 0) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    const int file = open((dir_ + "/db/LOCK").c_str(), O_RDWR);
    const char held = fcntl(file, F_SETLK, &lock) == 0 ? 'y' : 'n';
    (void)!write(ready[1], &held, 1);
    pause();
    _exit(0);
  }
  char held = 0;
  EXPECT_EQ(read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_THAT(OpenError(), HasSubstr("in use by another traincheckd"));
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(RocksdbStoreTest, RefusesASecondDaemon) {
  const auto store = Open();
  // Also where the first is of a version before this one's format, whose
  // directory stays its own.
  const std::string older = "traincheckd store 1\n";
  std::ofstream(dir_ + "/FORMAT") << older;
  EXPECT_THAT(OpenError(), HasSubstr("in use by another traincheckd"));
  std::string said;
  std::getline(std::ifstream(dir_ + "/FORMAT"), said);
  EXPECT_EQ(said + "\n", older);
}

TEST_F(RocksdbStoreTest, RefusesANewerFormatAndNamesBothVersions) {
  Open();
  std::ofstream(dir_ + "/FORMAT") << "traincheckd store 7\n";
  EXPECT_THAT(OpenError(), HasSubstr("store format 7, this program knows "
                                     "formats up to 2"));
}

TEST_F(RocksdbStoreTest, RefusesAForeignDirectoryAndLeavesItAlone) {
  std::filesystem::create_directories(dir_);
  std::ofstream(dir_ + "/thesis.tex") << "years of work";
  EXPECT_THAT(OpenError(), HasSubstr("is not a traincheckd data directory"));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/thesis.tex"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/db"));
}

TEST_F(RocksdbStoreTest, RefusesAFormatFileOfSomethingElse) {
  std::filesystem::create_directories(dir_);
  std::ofstream(dir_ + "/FORMAT") << "hdf5\n";
  EXPECT_THAT(OpenError(), HasSubstr("is not a traincheckd data directory"));
}

TEST_F(RocksdbStoreTest, RefusesAFile) {
  std::ofstream file(dir_);
  EXPECT_THAT(OpenError(), HasSubstr("ot a directory"));
}

TEST_F(RocksdbStoreTest, TakesADirectoryWhoseCreationWasCutShort) {
  std::filesystem::create_directories(dir_);
  std::ofstream(dir_ + "/FORMAT") << "traincheckd store 1\n";
  EXPECT_NE(Open(), nullptr);
}

}  // namespace
}  // namespace traincheck::server
