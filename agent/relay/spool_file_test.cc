#include "agent/relay/spool_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "agent/relay/limits.h"
#include "agent/relay/spool_for_testing.h"
#include "agent/relay/spool_load.h"

namespace {
// A folder whose files cannot be locked, and why; empty: none.
std::string g_without_locks;
int g_lock_error = 0;
}  // namespace

// In place of libc's.
extern "C" int flock(int fd, int how) noexcept {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (!g_without_locks.empty() &&
      readlink(link.c_str(), path, sizeof path - 1) > 0 &&
      std::string(path).starts_with(g_without_locks + "/")) {
    errno = g_lock_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_flock, fd, how));
}

namespace traincheck::agent {
namespace {

class SpoolFileTest : public testing::Test {
 protected:
  SpoolFileTest()
      : folder_(testing::TempDir() + "/spool-" + std::to_string(getpid()) +
                "-" + std::to_string(next_folder_++)) {
    std::filesystem::create_directories(folder_);
  }
  ~SpoolFileTest() override {
    g_without_locks.clear();
    std::filesystem::remove_all(folder_);
  }

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
  const std::vector<SpoolPlace> places_ = SpoolPlacesIn(folder_, geteuid());
};

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

TEST_F(SpoolFileTest, GivesBackWhatWasAppended) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  const auto first = file->Append(SpoolEntryKind::kBatch, 4, BatchBytes(4));
  const auto second =
      file->Append(SpoolEntryKind::kBatch, 6, BatchBytes(6, 300000));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(file->ReadBatch(*second, 6).value(), BatchBytes(6, 300000));
  EXPECT_EQ(file->ReadBatch(*first, 4).value(), BatchBytes(4));
}

TEST_F(SpoolFileTest, NeverTakesAnExistingFile) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  EXPECT_FALSE(SpoolFile::Create(&directory, "a.spool", HelloBytes()).ok());
  EXPECT_TRUE(ReadSpool(file->path()).ok());
}

TEST_F(SpoolFileTest, KeepsItsLimitAndUsesFreedRoomAgain) {
  SpoolDirectory directory(places_, 5000);
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

TEST_F(SpoolFileTest, AFullDiskKeepsWhatIsThere) {
  std::filesystem::create_directories(folder_);
  if (mount("none", folder_.c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "mounting is not allowed here: " << strerror(errno);
  }
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  size_t appended = 0;
  absl::Status status;
  while (status.ok() && appended < 1000) {
    status = file->Append(SpoolEntryKind::kBatch, appended,
                          BatchBytes(appended, 3000))
                 .status();
    if (status.ok()) ++appended;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("5% free"), std::string::npos) << status;
  // Others fill the rest, behind the count of free space.
  std::ofstream(folder_ + "/others") << std::string(256 << 10, 'x');
  EXPECT_FALSE(
      file->Append(SpoolEntryKind::kBatch, 0, BatchBytes(0, 3000)).ok());
  EXPECT_EQ(ReadSpool(file->path())->batches.size(), appended);
  EXPECT_FALSE(ReadSpool(file->path())->torn);
  std::filesystem::remove(folder_ + "/others");
  file->Clear(appended);
  EXPECT_TRUE(
      file->Append(SpoolEntryKind::kBatch, 9, BatchBytes(9, 3000)).ok());
  file.reset();
  // The directory still holds it.
  umount2(folder_.c_str(), MNT_DETACH);
}

// What nobody can lock nobody could deliver.
TEST_F(SpoolFileTest, IsMadeInAFolderThatHasLocks) {
  std::vector<SpoolPlace> places = SpoolPlacesIn(folder_ + "/a", geteuid());
  places.push_back(SpoolPlacesIn(folder_ + "/b", geteuid()).at(0));
  g_without_locks = std::filesystem::canonical(folder_) / "a";
  g_lock_error = ENOLCK;
  SpoolDirectory directory(places, kNoLimit);
  EXPECT_EQ(Create(&directory)->path(), folder_ + "/b/a.spool");
  EXPECT_TRUE(SpoolFiles(folder_ + "/a").empty());
  SpoolDirectory only(SpoolPlacesIn(folder_ + "/a", geteuid()), kNoLimit);
  const absl::Status status =
      SpoolFile::Create(&only, "a.spool", HelloBytes()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(std::strerror(ENOLCK)), std::string::npos)
      << status;
}

TEST_F(SpoolFileTest, ThatCannotBeLockedIsInNobodysHands) {
  SpoolDirectory directory(places_, kNoLimit);
  const std::string path = Create(&directory)->path();
  g_without_locks = std::filesystem::canonical(folder_);
  g_lock_error = EOPNOTSUPP;
  const absl::Status status = SpoolFile::Open(&directory, path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(std::strerror(EOPNOTSUPP)), std::string::npos)
      << status;
  g_without_locks.clear();
  EXPECT_TRUE(SpoolFile::Open(&directory, path).ok());
}

TEST_F(SpoolFileTest, IsTakenOverByOneAtATime) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  ASSERT_TRUE(file->Append(SpoolEntryKind::kBatch, 5, BatchBytes(5)).ok());
  const std::string path = directory.Find("a.spool");
  EXPECT_EQ(path, file->path());
  EXPECT_EQ(LoadSpool(&directory, path).status().code(),
            absl::StatusCode::kAborted);
  file.reset();
  auto loaded = LoadSpool(&directory, path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(LoadSpool(&directory, path).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(loaded->hello.run(), "run");
  EXPECT_TRUE(loaded->hello.resumes());
  EXPECT_NE(loaded->file->head().header.pid_namespace, 0u);
  ASSERT_EQ(loaded->batches.size(), 1u);
  EXPECT_EQ(loaded->batches[0].number, 5u);
  EXPECT_EQ(loaded->next_number, 6u);
  // And it goes on where it ended.
  ASSERT_TRUE(
      loaded->file->Append(SpoolEntryKind::kBatch, 6, BatchBytes(6)).ok());
  EXPECT_EQ(ReadSpool(path)->batches.size(), 2u);
}

TEST_F(SpoolFileTest, WhatIsDamagedIsLeftOutAndCounted) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  std::vector<uint64_t> offsets;
  for (uint64_t number = 0; number < 6; ++number) {
    offsets.push_back(
        file->Append(SpoolEntryKind::kBatch, number, BatchBytes(number, 500))
            .value());
  }
  file.reset();
  for (uint64_t inside : {0, 4, 16, 24, 200}) {
    Damage(offsets[2] + inside);
    auto loaded = LoadSpool(&directory, folder_ + "/a.spool");
    ASSERT_TRUE(loaded.ok());
    EXPECT_EQ(loaded->damage.places, 1u) << inside;
    EXPECT_EQ(loaded->damage.torn_bytes, 0u);
    ASSERT_EQ(loaded->batches.size(), 5u) << inside;
    EXPECT_EQ(loaded->batches[2].number, 3u);
    loaded->file.reset();
    Damage(offsets[2] + inside);
  }
  const uint64_t size = std::filesystem::file_size(folder_ + "/a.spool");
  std::filesystem::resize_file(folder_ + "/a.spool", size - 3);
  const auto loaded = LoadSpool(&directory, folder_ + "/a.spool");
  EXPECT_EQ(loaded->batches.size(), 5u);
  EXPECT_EQ(loaded->damage.places, 0u);
  EXPECT_GT(loaded->damage.torn_bytes, 0u);
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/a.spool"), offsets[5]);
}

// Each of 700,000 headers announces as many bytes as an entry may have: without
// a bound 1.4 TB to hash.
TEST_F(SpoolFileTest, AFileOfFalseHeadersIsGivenUp) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  ASSERT_TRUE(file->Append(SpoolEntryKind::kBatch, 0, BatchBytes(0)).ok());
  const std::string path = file->path();
  file.reset();
  const SpoolEntryHeader header = {
      .payload_bytes = 2 * kMaxPayloadBytes,
      .kind = static_cast<uint32_t>(SpoolEntryKind::kBatch),
      .number = 1,
      .hash = 0};
  std::string headers;
  while (headers.size() < (size_t{16} << 20)) {
    headers.append(reinterpret_cast<const char*>(&header), sizeof header);
  }
  std::ofstream(path, std::ios::app | std::ios::binary) << headers;
  const auto loaded = LoadSpool(&directory, path);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->batches.size(), 1u);
  EXPECT_EQ(loaded->damage.torn_bytes, headers.size());
}

TEST_F(SpoolFileTest, ADamagedBeginningIsNoSpool) {
  SpoolDirectory directory(places_, kNoLimit);
  Create(&directory);
  const std::string path = folder_ + "/a.spool";
  for (uint64_t at : {0, 12, 24, 32, 41}) {
    Damage(at);
    EXPECT_EQ(LoadSpool(&directory, path).status().code(),
              absl::StatusCode::kDataLoss)
        << at;
    Damage(at);
  }
  EXPECT_TRUE(LoadSpool(&directory, path).ok());
  Damage(8);  // the version
  EXPECT_EQ(LoadSpool(&directory, path).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(SetDamagedAside(path), path + ".damaged");
  EXPECT_TRUE(directory.Files().empty());
}

TEST_F(SpoolFileTest, ReadsVersion1) {
  std::filesystem::create_directories(folder_);
  const std::string path = folder_ + "/old.spool";
  {
    const std::string hello = HelloBytes();
    const SpoolHeader header = {.magic = kSpoolMagic,
                                .version = 1,
                                .hello_bytes = uint32_t(hello.size()),
                                .acknowledged = 3,
                                .hello_hash = SpoolHelloHash(hello, 0),
                                .pid_namespace = 0};
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), kSpoolHeaderBytesV1);
    file << hello;
    for (uint64_t number = 2; number < 6; ++number) {
      const std::string payload = BatchBytes(number);
      SpoolEntryHeader entry = {static_cast<uint32_t>(payload.size()), 1,
                                number, 0};
      entry.hash = SpoolEntryHash(entry, payload);
      file.write(reinterpret_cast<const char*>(&entry), sizeof entry);
      file << payload;
    }
  }
  SpoolDirectory directory(places_, kNoLimit);
  auto loaded = LoadSpool(&directory, path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->batches.size(), 3u);  // the first is acknowledged
  EXPECT_EQ(loaded->batches[0].number, 3u);
  EXPECT_EQ(loaded->file->ReadBatch(loaded->batches[0].offset, 3).value(),
            BatchBytes(3));
}

// Whole entries that no relay appends there would make the server's cursor
// mean other batches than those that it has.
TEST_F(SpoolFileTest, NumbersThatDoNotRiseAreDamage) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  const uint64_t numbers[] = {4, 3, 4, 6, UINT64_MAX, kSpoolNumberEnd};
  for (uint64_t number : numbers) {
    ASSERT_TRUE(
        file->Append(SpoolEntryKind::kBatch, number, BatchBytes(number)).ok());
  }
  file.reset();
  const auto loaded = LoadSpool(&directory, folder_ + "/a.spool");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->batches.size(), 2u);
  EXPECT_EQ(loaded->batches[0].number, 4u);
  EXPECT_EQ(loaded->batches[1].number, 6u);
  EXPECT_EQ(loaded->next_number, 7u);
  EXPECT_EQ(loaded->damage.places, 4u);
}

TEST_F(SpoolFileTest, AGoodbyeThatDoesNotParseIsNone) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_CLEAN);
  ASSERT_TRUE(file->Append(SpoolEntryKind::kGoodbye, 1,
                           goodbye.SerializeAsString() + "\xff")
                  .ok());
  file.reset();
  const auto loaded = LoadSpool(&directory, folder_ + "/a.spool");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(loaded->goodbye.has_value());
  EXPECT_EQ(loaded->damage.places, 1u);
}

TEST_F(SpoolFileTest, AnAcknowledgedNumberBeyondAllIsADamagedHeader) {
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  file->SetAcknowledged(UINT64_MAX);
  file.reset();
  EXPECT_EQ(LoadSpool(&directory, folder_ + "/a.spool").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(SpoolFileTest, NoticesDamage) {
  SpoolDirectory directory(places_, kNoLimit);
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
  SpoolDirectory directory(places_, kNoLimit);
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
  SpoolDirectory directory(places_, kNoLimit);
  auto file = Create(&directory);
  const std::string path = file->path();
  file.reset();
  EXPECT_EQ(SpoolFiles(folder_), std::vector<std::string>{path});
  file = SpoolFile::Create(&directory, "b.spool", HelloBytes()).value();
  file->Remove();
  EXPECT_EQ(SpoolFiles(folder_), std::vector<std::string>{path});
}

}  // namespace
}  // namespace traincheck::agent
