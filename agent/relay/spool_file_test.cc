#include "agent/relay/spool_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "agent/relay/spool_for_testing.h"

namespace traincheck {
namespace {

class SpoolFileTest : public testing::Test {
 protected:
  SpoolFileTest()
      : folder_(testing::TempDir() + "/spool-" + std::to_string(getpid()) +
                "-" + std::to_string(next_folder_++)) {}
  ~SpoolFileTest() override { std::filesystem::remove_all(folder_); }

  static std::string BatchBytes(uint64_t number, size_t payload = 100) {
    v1::Batch batch;
    batch.set_number(number);
    batch.set_payload(std::string(payload, 'p'));
    return batch.SerializeAsString();
  }

  static std::string HelloBytes() {
    v1::Hello hello;
    hello.set_run("run");
    return hello.SerializeAsString();
  }

  std::unique_ptr<SpoolFile> Create(SpoolDirectory* directory) {
    auto file = SpoolFile::Create(directory, "a.spool", HelloBytes());
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

  // Overwrites one byte of the file.
  void Damage(uint64_t at) {
    const int fd = open((folder_ + "/a.spool").c_str(), O_RDWR);
    char byte = 0;
    ASSERT_EQ(pread(fd, &byte, 1, static_cast<off_t>(at)), 1);
    byte = static_cast<char>(byte ^ 0x40);
    ASSERT_EQ(pwrite(fd, &byte, 1, static_cast<off_t>(at)), 1);
    close(fd);
  }

  static inline int next_folder_ = 0;
  const std::string folder_;
};

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

TEST_F(SpoolFileTest, GivesBackWhatWasAppended) {
  SpoolDirectory directory(folder_, folder_, kNoLimit);
  auto file = Create(&directory);
  const auto first = file->Append(SpoolEntryKind::kBatch, 4, BatchBytes(4));
  const auto second =
      file->Append(SpoolEntryKind::kBatch, 6, BatchBytes(6, 300000));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(file->ReadBatch(*second, 6).value(), BatchBytes(6, 300000));
  EXPECT_EQ(file->ReadBatch(*first, 4).value(), BatchBytes(4));
}

TEST_F(SpoolFileTest, IsPrivate) {
  SpoolDirectory directory(folder_ + "/a/b", folder_, kNoLimit);
  auto file = Create(&directory);
  struct stat status;
  ASSERT_EQ(stat(file->path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((folder_ + "/a/b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(SpoolFileTest, NeverTakesAnExistingFile) {
  SpoolDirectory directory(folder_, folder_, kNoLimit);
  auto file = Create(&directory);
  EXPECT_FALSE(SpoolFile::Create(&directory, "a.spool", HelloBytes()).ok());
  EXPECT_TRUE(ReadSpool(file->path()).ok());
}

TEST_F(SpoolFileTest, FallsBackToTheSecondFolder) {
  SpoolDirectory directory("/proc/no/such/folder", folder_, kNoLimit);
  auto file = Create(&directory);
  EXPECT_EQ(file->path(), folder_ + "/a.spool");
  SpoolDirectory nowhere("/proc/no", "/proc/neither", kNoLimit);
  EXPECT_FALSE(nowhere.Prepare().ok());
}

TEST_F(SpoolFileTest, RefusesAFallbackThatIsALink) {
  std::filesystem::create_directories(folder_ + "/real");
  std::filesystem::create_symlink(folder_ + "/real", folder_ + "/link");
  SpoolDirectory directory("/proc/no", folder_ + "/link", kNoLimit);
  EXPECT_FALSE(directory.Prepare().ok());
}

TEST_F(SpoolFileTest, KeepsItsLimitAndUsesFreedRoomAgain) {
  SpoolDirectory directory(folder_, folder_, 5000);
  auto file = Create(&directory);
  int appended = 0;
  absl::Status status;
  while (status.ok() && appended < 100) {
    status = file->Append(SpoolEntryKind::kBatch, appended,
                          BatchBytes(appended, 1000))
                 .status();
    if (status.ok()) ++appended;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(appended, 4);
  EXPECT_LE(std::filesystem::file_size(file->path()), 5000u);
  file->Clear(appended);
  EXPECT_TRUE(file->Append(SpoolEntryKind::kBatch, 9, BatchBytes(9)).ok());
  const auto contents = ReadSpool(file->path());
  ASSERT_TRUE(contents.ok());
  EXPECT_EQ(contents->acknowledged, 4u);
  ASSERT_EQ(contents->batches.size(), 1u);
  EXPECT_EQ(contents->batches[0].number(), 9u);
}

TEST_F(SpoolFileTest, CountsFilesThatWereLeftBefore) {
  {
    SpoolDirectory directory(folder_, folder_, kNoLimit);
    auto file = SpoolFile::Create(&directory, "old.spool", HelloBytes());
    ASSERT_TRUE(
        (*file)->Append(SpoolEntryKind::kBatch, 0, BatchBytes(0, 9000)).ok());
  }
  SpoolDirectory directory(folder_, folder_, 9000);
  EXPECT_EQ(SpoolFile::Create(&directory, "a.spool", "").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(SpoolFileTest, NoticesDamage) {
  SpoolDirectory directory(folder_, folder_, kNoLimit);
  auto file = Create(&directory);
  const uint64_t at =
      file->Append(SpoolEntryKind::kBatch, 1, BatchBytes(1)).value();
  for (uint64_t byte : {0, 4, 8, 16, 24, 60}) {
    Damage(at + byte);
    const auto read = file->ReadBatch(at, 1);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << byte;
    Damage(at + byte);  // and back
  }
  EXPECT_TRUE(file->ReadBatch(at, 1).ok());
  EXPECT_FALSE(file->ReadBatch(at, 2).ok());
  EXPECT_FALSE(file->ReadBatch(at + 8, 1).ok());
}

TEST_F(SpoolFileTest, ATruncatedFileGivesAllWholeEntries) {
  SpoolDirectory directory(folder_, folder_, kNoLimit);
  auto file = Create(&directory);
  ASSERT_TRUE(file->Append(SpoolEntryKind::kBatch, 0, BatchBytes(0)).ok());
  const uint64_t last =
      file->Append(SpoolEntryKind::kBatch, 1, BatchBytes(1)).value();
  const uint64_t size = std::filesystem::file_size(file->path());
  for (uint64_t length = size - 1; length > last; --length) {
    ASSERT_EQ(truncate(file->path().c_str(), static_cast<off_t>(length)), 0);
    const auto contents = ReadSpool(file->path());
    ASSERT_TRUE(contents.ok());
    EXPECT_EQ(contents->batches.size(), 1u);
    EXPECT_TRUE(contents->torn);
    EXPECT_FALSE(file->ReadBatch(last, 1).ok());
  }
}

TEST_F(SpoolFileTest, RemoveDeletesTheFileAndDestructionDoesNot) {
  SpoolDirectory directory(folder_, folder_, kNoLimit);
  auto file = Create(&directory);
  const std::string path = file->path();
  file.reset();
  EXPECT_EQ(SpoolFiles(folder_), std::vector<std::string>{path});
  file = SpoolFile::Create(&directory, "b.spool", HelloBytes()).value();
  file->Remove();
  EXPECT_EQ(SpoolFiles(folder_), std::vector<std::string>{path});
}

}  // namespace
}  // namespace traincheck
