// What the store does about damage, deletion, copies and a disk that is full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/logging.h"
#include "server/store/keys.h"
#include "server/store/rocksdb_store.h"
#include "server/store/run_range.h"
#include "spdlog/sinks/sink.h"

namespace traincheck::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr size_t kValueBytes = 100'000;

std::string Key(uint64_t run, uint64_t batch) {
  return BatchKey({.run = run, .process = 0, .batch = batch});
}

class RocksdbRecoveryTest : public testing::Test {
 protected:
  RocksdbRecoveryTest()
      : base_(testing::TempDir() + "/recovery-" +
              testing::UnitTest::GetInstance()->current_test_info()->name()),
        dir_(base_ + "/data") {
    fs::remove_all(base_);
    fs::create_directories(base_);
  }

  std::unique_ptr<Store> Open(const std::string& dir) {
    absl::StatusOr<std::unique_ptr<Store>> store = OpenRocksdbStore(dir);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // As a kill at this moment would leave it.
  std::string CopyOf(const std::string& dir) {
    const std::string copy = base_ + "/copy";
    fs::remove_all(copy);
    fs::copy(dir, copy, fs::copy_options::recursive);
    return copy;
  }
  static absl::Status Put(Store* store, uint64_t run, uint64_t batch,
                          absl::Duration patience = absl::Minutes(1)) {
    WriteSet writes;
    writes.Put(Table::kBatches, Key(run, batch),
               std::string(kValueBytes, static_cast<char>('a' + run)));
    return store->WriteAndWait(std::move(writes), patience);
  }
  static bool Has(const Store& store, uint64_t run, uint64_t batch) {
    const auto value = store.Get(Table::kBatches, Key(run, batch));
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() && value->has_value();
  }
  static void Reclaim(Store* store, uint64_t run) {
    std::atomic<bool> cancel = false;
    const KeyRange range = BatchesOf(run);
    const absl::Status done = store->Reclaim(range.from, range.to, &cancel);
    EXPECT_TRUE(done.ok()) << done;
  }
  static fs::path Largest(const std::string& dir, const std::string& suffix) {
    fs::path largest;
    for (const auto& entry : fs::directory_iterator(dir + "/db")) {
      if (entry.path().extension() == suffix &&
          (largest.empty() || entry.file_size() > fs::file_size(largest))) {
        largest = entry.path();
      }
    }
    return largest;
  }
  static void Flip(const fs::path& path, uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 0x5a);
    file.seekp(at);
    file.put(byte);
  }

  const std::string base_;
  const std::string dir_;
};

TEST_F(RocksdbRecoveryTest, ALogWithoutItsEndLosesNothingBeforeIt) {
  const auto store = Open(dir_);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Put(store.get(), 1, i).ok());
  const std::string copy = CopyOf(dir_);
  const fs::path log = Largest(copy, ".log");
  fs::resize_file(log, fs::file_size(log) - 10);
  const auto recovered = Open(copy);
  ASSERT_NE(recovered, nullptr);
  EXPECT_EQ(recovered->id(), store->id());
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(Has(*recovered, 1, i)) << i;
  EXPECT_FALSE(Has(*recovered, 1, 4));
}

TEST_F(RocksdbRecoveryTest,
       ALogDamagedInItsMiddleIsRefusedUnlessLossIsAccepted) {
  const auto store = Open(dir_);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Put(store.get(), 1, i).ok());
  const std::string copy = CopyOf(dir_);
  Flip(Largest(copy, ".log"), 2 * kValueBytes);
  for (int i = 0; i < 2; ++i) {  // refusing changes nothing
    const absl::Status refused = OpenRocksdbStore(copy).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is damaged"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(".log: dropping"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--accept-loss"));
  }
  const auto cut = OpenRocksdbStore(copy, {.accept_loss = true});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_TRUE(Has(**cut, 1, 0));
  EXPECT_FALSE(Has(**cut, 1, 4));
  EXPECT_NE((*cut)->id(), store->id());
}

// RocksDB names the file, and a folder may be called anything.
TEST_F(RocksdbRecoveryTest, DamageInAFolderOfClocksIsNotAnotherDaemon) {
  {
    const auto store = Open(dir_);
    for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Put(store.get(), 1, i).ok());
  }
  const std::string clocks = base_ + "/clocks";
  fs::rename(dir_, clocks);
  const auto refused = [&] {
    return std::string(OpenRocksdbStore(clocks).status().message());
  };
  Flip(Largest(clocks, ".log"), 2 * kValueBytes);
  EXPECT_THAT(refused(), HasSubstr("is damaged"));
  for (const auto& entry : fs::directory_iterator(clocks + "/db")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("MANIFEST")) fs::remove(entry.path());
  }
  EXPECT_THAT(refused(), testing::Not(HasSubstr("another traincheckd")));
}

TEST_F(RocksdbRecoveryTest, ADamagedBlobIsNamedAndOtherRunsAreRead) {
  {
    const auto store = Open(dir_);
    for (uint64_t run = 1; run < 4; ++run) {
      ASSERT_TRUE(Put(store.get(), run, 0).ok());
    }
    Reclaim(store.get(), 9);  // to files
  }
  Flip(Largest(dir_, ".blob"), kValueBytes / 2);
  const auto store = Open(dir_);
  ASSERT_NE(store, nullptr);
  const absl::Status damaged = store->Get(Table::kBatches, Key(1, 0)).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()),
              HasSubstr("the store is damaged"));
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("reading batches in "));
  EXPECT_TRUE(Has(*store, 2, 0));
  EXPECT_TRUE(Has(*store, 3, 0));
}

TEST_F(RocksdbRecoveryTest, DeletedRunsGiveTheirRoomBack) {
  const auto store = Open(dir_);
  // Two runs at once share files, a third lies behind them.
  constexpr uint64_t kBatches = 100;
  for (uint64_t i = 0; i < kBatches; ++i) {
    ASSERT_TRUE(Put(store.get(), 1, i).ok());
    ASSERT_TRUE(Put(store.get(), 2, i).ok());
  }
  for (uint64_t i = 0; i < kBatches; ++i) {
    ASSERT_TRUE(Put(store.get(), 3, i).ok());
  }
  Reclaim(store.get(), 9);  // to files
  const uint64_t before = store->Health().stored_bytes;
  EXPECT_GT(before, 3 * kBatches * kValueBytes);
  for (const uint64_t run : {1, 3}) {
    WriteSet deletions;
    DeleteRecordsOf(run, &deletions);
    ASSERT_TRUE(store->Erase(deletions).ok());
    Reclaim(store.get(), run);
  }
  const uint64_t after = store->Health().stored_bytes;
  EXPECT_LT(after, kBatches * kValueBytes * 11 / 10);
  for (uint64_t i = 0; i < kBatches; ++i) {
    EXPECT_TRUE(Has(*store, 2, i));
    EXPECT_FALSE(Has(*store, 1, i));
    EXPECT_FALSE(Has(*store, 3, i));
  }
  RecordProperty("bytes_before", std::to_string(before));
  RecordProperty("bytes_after", std::to_string(after));
}

TEST_F(RocksdbRecoveryTest, ABackupIsAStoreOfItsOwn) {
  const auto store = Open(dir_);
  ASSERT_TRUE(Put(store.get(), 1, 0).ok());
  const std::string folder = base_ + "/backup";
  const auto bytes = store->Backup(folder);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, kValueBytes);
  ASSERT_TRUE(Put(store.get(), 1, 1).ok());
  std::string id;
  {
    const auto restored = Open(folder);
    ASSERT_NE(restored, nullptr);
    EXPECT_TRUE(Has(*restored, 1, 0));
    EXPECT_FALSE(Has(*restored, 1, 1));
    id = restored->id();
    EXPECT_NE(id, store->id());
  }
  EXPECT_EQ(Open(folder)->id(), id);
  EXPECT_TRUE(Has(*store, 1, 1));
}

TEST_F(RocksdbRecoveryTest, ABackupHasAFolderOfItsOwn) {
  const auto store = Open(dir_);
  const auto error = [&](const std::string& folder) {
    return store->Backup(folder).status();
  };
  EXPECT_EQ(error("relative").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error(dir_ + "/inside").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error(base_).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(error(base_ + "/no/parent").message()),
              HasSubstr("No such file"));
  fs::create_symlink(base_ + "/nowhere", base_ + "/link");
  EXPECT_EQ(error(base_ + "/link").code(), absl::StatusCode::kAlreadyExists);
}

// Holds a call up where it logs `line`.
class Holder : public spdlog::sinks::sink {
 public:
  explicit Holder(std::string line) : line_(std::move(line)) {
    spdlog::default_logger()->sinks().push_back(
        std::shared_ptr<Holder>(this, [](Holder*) {}));
  }
  ~Holder() override {
    Release();
    spdlog::default_logger()->sinks().pop_back();
  }
  void AwaitIt() { there_.WaitForNotification(); }
  void Release() {
    if (!released_.HasBeenNotified()) released_.Notify();
  }

  void log(const spdlog::details::log_msg& message) override {
    const std::string text(message.payload.data(), message.payload.size());
    if (!text.starts_with(line_) || there_.HasBeenNotified()) return;
    there_.Notify();
    released_.WaitForNotification();
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  const std::string line_;
  absl::Notification there_;
  absl::Notification released_;
};

// No file of this process may grow beyond `bytes`, as on a disk that is full.
void LimitFileSize(rlim_t bytes) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST_F(RocksdbRecoveryTest, ALongBackupHoldsNoReaderUpAfterAWriteError) {
  const auto store = Open(dir_);
  ASSERT_TRUE(Put(store.get(), 1, 0).ok());
  Holder backup_at_work("backup made");
  std::thread backup([&] { EXPECT_TRUE(store->Backup(base_ + "/b").ok()); });
  backup_at_work.AwaitIt();
  LimitFileSize(1);
  EXPECT_FALSE(Put(store.get(), 1, 1, absl::Milliseconds(100)).ok());
  // Until the store has tried to open the database again.
  std::string error;
  for (int i = 0; i < 500 && error.find("backup") == error.npos; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    error = std::string(store->Health().error.message());
  }
  LimitFileSize(RLIM_INFINITY);
  EXPECT_THAT(error, HasSubstr("once the backup is made"));
  absl::Notification has_read;
  std::thread reader([&] {
    EXPECT_TRUE(Has(*store, 1, 0));
    has_read.Notify();
  });
  EXPECT_TRUE(has_read.WaitForNotificationWithTimeout(absl::Seconds(5)));
  backup_at_work.Release();
  backup.join();
  reader.join();
  // Behind it, in their order.
  ASSERT_TRUE(Put(store.get(), 1, 2).ok());
  EXPECT_TRUE(Has(*store, 1, 1));
}

// A disk of 48 MiB that is really full.
class FullDiskTest : public RocksdbRecoveryTest {
 protected:
  void SetUp() override {
    fs::create_directories(dir_);
    if (mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=48m") != 0) {
      GTEST_SKIP() << "may not mount a tmpfs here: " << strerror(errno);
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) umount2(dir_.c_str(), MNT_DETACH);
  }

  bool mounted_ = false;
};

TEST_F(FullDiskTest, NothingIsAcknowledgedUntilThereIsRoomAgain) {
  // No reserve: the disk itself refuses.
  auto opened = OpenRocksdbStore(dir_, {.min_free_bytes = 0});
  ASSERT_TRUE(opened.ok()) << opened.status();
  Store* store = opened->get();
  const std::string ballast = dir_ + "/ballast";
  std::ofstream(ballast) << std::string(20 << 20, 'x');
  uint64_t stored = 0;
  while (stored < 1000 &&
         Put(store, 1, stored, absl::Milliseconds(1500)).ok()) {
    ++stored;
  }
  ASSERT_GT(stored, 10u);
  ASSERT_LT(stored, 400u);
  EXPECT_FALSE(store->Health().error.ok());
  fs::remove(ballast);
  ASSERT_TRUE(Put(store, 1, 1000).ok());
  EXPECT_TRUE(store->Health().error.ok()) << store->Health().error;
  for (uint64_t i = 0; i <= stored; ++i) EXPECT_TRUE(Has(*store, 1, i)) << i;
}

}  // namespace
}  // namespace traincheck::server
