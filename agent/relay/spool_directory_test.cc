// Where spool files go, and how much all relays of a user may hold.
#include "agent/relay/spool_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "agent/relay/folder_watch_for_testing.h"
#include "agent/relay/limits.h"
#include "agent/relay/process_liveness.h"
#include "agent/relay/spool_file.h"
#include "agent/relay/spool_for_testing.h"
#include "agent/relay/spool_load.h"

namespace traincheck::agent {
namespace {

namespace fs = std::filesystem;
using Kind = SpoolPlace::Kind;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;
constexpr uid_t kNobody = 65534;

class SpoolDirectoryTest : public testing::Test {
 protected:
  SpoolDirectoryTest() {
    char name[] = "/tmp/spool-test-XXXXXX";
    folder_ = mkdtemp(name);
    chmod(folder_.c_str(), 0755);
  }
  ~SpoolDirectoryTest() override { fs::remove_all(folder_); }

  std::vector<SpoolPlace> In(const std::string& folder) {
    return SpoolPlacesIn(folder, geteuid());
  }
  SpoolPlace Temporary(const std::string& folder) {
    return {Kind::kTemporary, folder,
            "traincheck-" + std::to_string(geteuid()) + "/spool"};
  }
  mode_t ModeOf(const std::string& path) {
    struct stat status;
    return lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  }
  std::unique_ptr<SpoolFile> Create(SpoolDirectory* directory,
                                    const std::string& name = "a.spool") {
    auto file = SpoolFile::Create(directory, name, "");
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  absl::Status Append(SpoolFile* file, size_t bytes) {
    return file
        ->Append(SpoolEntryKind::kBatch, next_number_++,
                 std::string(bytes, 'x'))
        .status();
  }
  uint64_t BytesIn(const std::string& folder) {
    uint64_t bytes = 0;
    for (const std::string& path : SpoolFiles(folder)) {
      bytes += fs::file_size(path);
    }
    return bytes;
  }

  // In a process of its own; true: it returned 0.
  static pid_t Start(const std::function<int()>& work) {
    const pid_t pid = fork();
    if (pid == 0) _exit(work());
    return pid;
  }
  static int End(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string folder_;
  uint64_t next_number_ = 0;
};

TEST_F(SpoolDirectoryTest, WhatTheSettingNamesIsMadePrivate) {
  SpoolDirectory directory(In(folder_ + "/a/b"), kNoLimit);
  const auto file = Create(&directory);
  EXPECT_EQ(file->path(), folder_ + "/a/b/a.spool");
  EXPECT_EQ(ModeOf(file->path()), 0600u);
  EXPECT_EQ(ModeOf(folder_ + "/a/b"), 0700u);
}

TEST_F(SpoolDirectoryTest, WhereEverybodyMayWriteEachUserHasAFolder) {
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  SpoolDirectory directory(In(folder_ + "/site"), kNoLimit);
  const std::string mine = folder_ + "/site/" + std::to_string(geteuid());
  EXPECT_EQ(directory.Prepare().value(), mine);
  EXPECT_EQ(ModeOf(mine), 0700u);
  EXPECT_EQ(ModeOf(folder_ + "/site"), 01777u);
}

TEST_F(SpoolDirectoryTest, TheSecondUserHasAFolderThereToo) {
  constexpr int kCannot = 2;
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  const std::string site = folder_ + "/site";
  SpoolDirectory first(In(site), kNoLimit);
  ASSERT_TRUE(first.Prepare().ok());
  const auto file = Create(&first);
  const int second = End(Start([&] {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return kCannot;
    SpoolDirectory directory(In(site), kNoLimit);
    if (directory.Prepare().value_or("") != site + "/65534") return 3;
    // Nor does it see, or get at, what the first one has.
    if (!directory.Files().empty()) return 4;
    return access(file->path().c_str(), F_OK) == 0 ? 5 : 0;
  }));
  if (second == kCannot) GTEST_SKIP() << "nobody becomes another user here";
  EXPECT_EQ(second, 0);
  EXPECT_EQ(ModeOf(site + "/65534"), 0700u);
}

TEST_F(SpoolDirectoryTest, ALinkOrAnothersFolderIsRefused) {
  const std::string uid = std::to_string(geteuid());
  const std::string first = folder_ + "/first", second = folder_ + "/second";
  fs::create_directories(first);
  fs::create_directories(second + "/real");
  ASSERT_EQ(chmod(first.c_str(), 01777), 0);
  fs::create_symlink(second + "/real", first + "/traincheck-" + uid);
  EXPECT_EQ(MakeSpoolFolder(Temporary(first)).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(fs::is_empty(second + "/real"));
  ASSERT_EQ(chmod(second.c_str(), 01777), 0);
  fs::create_directories(second + "/" + uid);
  if (chown((second + "/" + uid).c_str(), kNobody, kNobody) != 0) {
    GTEST_SKIP() << "nothing is given away here";
  }
  EXPECT_EQ(MakeSpoolFolder(In(second)[0]).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(SpoolDirectoryTest, WhatOthersMayWriteToIsRefused) {
  const std::string mine = folder_ + "/traincheck-" + std::to_string(geteuid());
  fs::create_directories(mine);
  ASSERT_EQ(chmod(mine.c_str(), 0777), 0);
  EXPECT_EQ(MakeSpoolFolder(Temporary(folder_)).status().code(),
            absl::StatusCode::kPermissionDenied);
  // What others may only read becomes private.
  ASSERT_EQ(chmod(mine.c_str(), 0755), 0);
  EXPECT_TRUE(MakeSpoolFolder(Temporary(folder_)).ok());
  EXPECT_EQ(ModeOf(mine), 0700u);
}

TEST_F(SpoolDirectoryTest, TheNextPlaceIsTakenAndTheNamedOneMissed) {
  std::vector<SpoolPlace> places = In("/proc/no/such/folder");
  places.push_back(Temporary(folder_ + "/missing"));
  places.push_back(Temporary(folder_));
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  SpoolDirectory directory(places, kNoLimit);
  const std::string path = directory.Prepare().value();
  const std::string said = testing::internal::GetCapturedStderr() +
                           testing::internal::GetCapturedStdout();
  EXPECT_EQ(path,
            folder_ + "/traincheck-" + std::to_string(geteuid()) + "/spool");
  EXPECT_NE(said.find("/proc/no/such/folder cannot be used"), std::string::npos)
      << said;
  EXPECT_NE(said.find(path), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(folder_ + "/missing"));
  EXPECT_FALSE(SpoolDirectory(In("/proc/no"), kNoLimit).Prepare().ok());
}

TEST_F(SpoolDirectoryTest, FindsWhatLiesInEveryPlace) {
  std::vector<SpoolPlace> places;
  for (const char* name : {"1", "2"}) {
    fs::create_directories(folder_ + "/" + name);
    places.push_back(Temporary(folder_ + "/" + name));
  }
  places.push_back({Kind::kState, folder_ + "/state/traincheck", "spool"});
  for (const SpoolPlace& place : places) {
    SpoolDirectory one({place}, kNoLimit);
    Create(&one, "of-" + std::to_string(next_number_++) + ".spool");
  }
  SpoolDirectory all(places, kNoLimit);
  EXPECT_EQ(all.Files().size(), 3u);
  EXPECT_EQ(all.Find("of-2.spool"),
            folder_ + "/state/traincheck/spool/of-2.spool");
  EXPECT_EQ(all.Find("of-3.spool"), "");
}

// As tools do that tidy up temporary folders.
TEST_F(SpoolDirectoryTest, AFolderThatIsDeletedMeanwhileIsMadeAnew) {
  SpoolDirectory directory({Temporary(folder_)}, kNoLimit);
  const std::string path = directory.Prepare().value();
  fs::remove_all(fs::path(path).parent_path());
  const auto file = Create(&directory);
  EXPECT_EQ(file->path(), path + "/a.spool");
  EXPECT_TRUE(Append(file.get(), 100).ok());
}

TEST_F(SpoolDirectoryTest, InMemoryALowerLimitHolds) {
  const std::string memory = folder_ + "/memory";
  fs::create_directories(memory);
  if (mount("none", memory.c_str(), "tmpfs", 0, "size=64m") != 0) {
    GTEST_SKIP() << "mounting is not allowed here";
  }
  for (const bool set : {true, false}) {
    SpoolDirectory directory({Temporary(memory)}, 30000);
    if (set) directory.SetMemoryLimit(3000);
    const auto file = Create(&directory);
    EXPECT_EQ(Append(file.get(), 20000).ok(), !set);
    file->Remove();
  }
  umount2(memory.c_str(), MNT_DETACH);
}

TEST_F(SpoolDirectoryTest, EightRelaysKeepTheLimitTogether) {
  constexpr uint64_t kLimit = 4 << 20;
  constexpr size_t kBatch = 16 << 10;
  std::vector<pid_t> relays;
  int ready[2], begin[2], hold[2];
  for (int* const ends : {ready, begin, hold}) ASSERT_EQ(pipe(ends), 0);
  for (int i = 0; i < 8; ++i) {
    relays.push_back(Start([&, i] {
      close(begin[1]);
      close(hold[1]);
      SpoolDirectory directory(In(folder_ + "/spool"), kLimit);
      const auto file = Create(&directory, std::to_string(i) + ".spool");
      // One that starts late would find no room for its file.
      char none;
      if (write(ready[1], "r", 1) != 1 || read(begin[0], &none, 1) != 0) {
        return 1;
      }
      while (Append(file.get(), kBatch).ok()) {
      }
      // It keeps what it has until all have met the limit.
      char byte;
      return read(hold[0], &byte, 1) == 0 ? 0 : 1;
    }));
  }
  char byte;
  for (int i = 0; i < 8; ++i) ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(begin[1]);
  // The last one gets what is left when the others have stopped.
  const auto used = [&] { return BytesIn(folder_ + "/spool"); };
  for (int i = 0; i < 6000 && used() + 9 * kBatch < kLimit; ++i) usleep(10000);
  usleep(100000);
  const uint64_t most = used();
  close(hold[1]);
  for (const int end : {ready[0], ready[1], begin[0], hold[0]}) close(end);
  for (const pid_t relay : relays) EXPECT_EQ(End(relay), 0);
  EXPECT_LE(most, kLimit);
  EXPECT_GE(most + 9 * kBatch, kLimit);
}

TEST_F(SpoolDirectoryTest, WhatAKilledRelayHasHeldCountsUntilItIsDelivered) {
  const std::string spool = folder_ + "/spool";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t relay = Start([&] {
    SpoolDirectory directory(In(spool), kNoLimit);
    const auto file = Create(&directory, "killed.spool");
    if (!Append(file.get(), 50000).ok() || write(ready[1], "r", 1) != 1) {
      return 1;
    }
    pause();
    return 0;
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  SpoolDirectory directory(In(spool), 60000);
  const auto file = Create(&directory);
  EXPECT_FALSE(Append(file.get(), 20000).ok());
  kill(relay, SIGKILL);
  EXPECT_EQ(End(relay), -1);
  EXPECT_FALSE(Append(file.get(), 20000).ok());
  {
    auto taken = SpoolFile::Open(&directory, spool + "/killed.spool");
    ASSERT_TRUE(taken.ok()) << taken.status();
    // It is not counted twice,
    EXPECT_TRUE(Append(file.get(), 5000).ok());
    EXPECT_FALSE(Append(file.get(), 20000).ok());
    // nor is it free where it could not be delivered.
    taken->reset();
    EXPECT_FALSE(Append(file.get(), 20000).ok());
  }
  auto taken = SpoolFile::Open(&directory, spool + "/killed.spool");
  ASSERT_TRUE(taken.ok()) << taken.status();
  (*taken)->Remove();
  EXPECT_TRUE(Append(file.get(), 20000).ok());
}

class CountedAnewTest : public SpoolDirectoryTest {
 protected:
  CountedAnewTest()
      : mine_(In(folder_ + "/spool"), 60000, [this] { return now_; }),
        theirs_(In(folder_ + "/spool"), kNoLimit, [this] { return now_; }),
        file_(Create(&mine_)),
        other_(Create(&theirs_, "b.spool")) {}

  std::string UsageFile() { return folder_ + "/spool/usage-" + BootId(); }

  SpoolDirectory::TimePoint now_{std::chrono::hours(1000)};
  SpoolDirectory mine_;
  SpoolDirectory theirs_;
  std::unique_ptr<SpoolFile> file_;
  std::unique_ptr<SpoolFile> other_;
};

TEST_F(CountedAnewTest, OthersCountAtOnce) {
  ASSERT_TRUE(Append(other_.get(), 50000).ok());
  EXPECT_FALSE(Append(file_.get(), 20000).ok());
  other_->Remove();
  EXPECT_TRUE(Append(file_.get(), 20000).ok());
}

TEST_F(CountedAnewTest, FilesThatAreDeletedByHandAreMissedLater) {
  ASSERT_TRUE(Append(other_.get(), 50000).ok());
  other_.reset();  // left
  EXPECT_FALSE(Append(file_.get(), 20000).ok());
  fs::remove(folder_ + "/spool/b.spool");
  EXPECT_FALSE(Append(file_.get(), 20000).ok());
  now_ += kSpoolCountAtLimit;
  EXPECT_TRUE(Append(file_.get(), 20000).ok());
}

TEST_F(CountedAnewTest, FilesThatNobodyCountedAreSeenLater) {
  std::ofstream(folder_ + "/spool/c.spool") << std::string(50000, 'x');
  EXPECT_TRUE(Append(file_.get(), 20000).ok());
  now_ += kSpoolCountPeriod;
  EXPECT_FALSE(Append(file_.get(), 20000).ok());
}

TEST_F(CountedAnewTest, ADamagedCounterIsMended) {
  const auto fill = [this](char byte) {
    std::ofstream(UsageFile(), std::ios::binary) << std::string(4096, byte);
  };
  fill('\xff');
  EXPECT_FALSE(Append(file_.get(), 1000).ok());
  now_ += kSpoolCountAtLimit;
  EXPECT_TRUE(Append(file_.get(), 1000).ok());
  // And what is cut off ends nobody.
  ASSERT_EQ(truncate(UsageFile().c_str(), 3), 0);
  EXPECT_TRUE(Append(file_.get(), 1000).ok());
  EXPECT_TRUE(Append(other_.get(), 1000).ok());
  file_->Remove();
}

TEST_F(CountedAnewTest, TheFolderIsNotLookedThroughForEachBatch) {
  FolderWatch watch(folder_ + "/spool");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Append(file_.get(), 100).ok());
  EXPECT_EQ(watch.TakeOpened().folder, 0);
  // Nor by each relay, when it is time.
  now_ += kSpoolCountPeriod;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Append(file_.get(), 100).ok());
    ASSERT_TRUE(Append(other_.get(), 100).ok());
  }
  const FolderWatch::Opened opened = watch.TakeOpened();
  EXPECT_GE(opened.folder, 1);
  EXPECT_LE(opened.folder, 2);  // and once for old counters
}

TEST_F(SpoolDirectoryTest, WithoutACounterARelayCountsForItself) {
  fs::create_directories(folder_ + "/spool/usage-" + BootId());
  std::ofstream(folder_ + "/spool/left.spool") << std::string(5000, 'x');
  SpoolDirectory directory(In(folder_ + "/spool"), 10000);
  const auto file = Create(&directory);
  EXPECT_TRUE(Append(file.get(), 4000).ok());
  EXPECT_EQ(Append(file.get(), 4000).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(SpoolDirectoryTest, FilesOfAnotherNodeDoNotCount) {
  const auto make = [this](const std::string& host) {
    v1::Hello hello;
    hello.mutable_process()->set_host(host);
    SpoolDirectory theirs(In(folder_ + "/spool"), kNoLimit);
    auto file = SpoolFile::Create(&theirs, host + "-theirs.spool",
                                  hello.SerializeAsString());
    ASSERT_TRUE(Append(file->get(), 5000).ok());
  };
  make("elsewhere");
  fs::remove(folder_ + "/spool/usage-" + BootId());
  {
    SpoolDirectory directory(In(folder_ + "/spool"), 9000);
    const auto file = Create(&directory);
    EXPECT_TRUE(Append(file.get(), 5000).ok());
    file->Remove();
  }
  make(HostName());  // before it was started anew
  fs::remove(folder_ + "/spool/usage-" + BootId());
  SpoolDirectory directory(In(folder_ + "/spool"), 9000);
  const auto file = Create(&directory);
  EXPECT_FALSE(Append(file.get(), 5000).ok());
}

TEST_F(SpoolDirectoryTest, CountersOfNodesThatAreGoneAreRemoved) {
  const std::string spool = folder_ + "/spool";
  fs::create_directories(spool);
  for (const char* name : {"usage-old", "usage-young"}) {
    std::ofstream(spool + "/" + name) << "x";
  }
  const utimbuf old = {0, 0};
  ASSERT_EQ(utime((spool + "/usage-old").c_str(), &old), 0);
  SpoolDirectory directory(In(spool), kNoLimit);
  Create(&directory);
  EXPECT_FALSE(fs::exists(spool + "/usage-old"));
  EXPECT_TRUE(fs::exists(spool + "/usage-young"));
}

}  // namespace
}  // namespace traincheck::agent
