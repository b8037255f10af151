#include "server/store/data_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace traincheck::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

class BackupTest : public testing::Test {
 protected:
  BackupTest()
      : base_(testing::TempDir() + "/backup-" +
              testing::UnitTest::GetInstance()->current_test_info()->name()),
        dir_(base_ + "/data"),
        folder_(base_ + "/backup") {
    fs::remove_all(base_);
    fs::create_directories(base_);
    EXPECT_TRUE(PrepareDataDir(dir_).ok());
  }

  absl::Status Backup(const std::string& folder) {
    return MakeBackup(dir_, folder, "0123456789abcdef",
                      [this](const std::string& path) {
                        beside_meanwhile_ = BesideBackup();
                        fs::create_directories(path);
                        return copied_;
                      });
  }
  // Names in the same folder that begin with the backup's.
  std::vector<std::string> BesideBackup() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(base_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("backup.")) names.push_back(name);
    }
    return names;
  }

  const std::string base_;
  const std::string dir_;
  const std::string folder_;
  absl::Status copied_;  // how the database's copy ends
  std::vector<std::string> beside_meanwhile_;
};

TEST_F(BackupTest, AppearsWhole) {
  EXPECT_TRUE(Backup(folder_ + "/").ok());
  EXPECT_THAT(beside_meanwhile_, ElementsAre(StartsWith("backup.partial-")));
  EXPECT_THAT(BesideBackup(), IsEmpty());
  EXPECT_TRUE(PrepareDataDir(folder_).ok());
  EXPECT_TRUE(IsUnopenedBackup(folder_));
  EXPECT_EQ(Backup(folder_).code(), absl::StatusCode::kAlreadyExists);
  fs::create_symlink(base_ + "/nowhere", base_ + "/link");
  EXPECT_EQ(Backup(base_ + "/link").code(), absl::StatusCode::kAlreadyExists);
}

// Of every format that there has been.
TEST(DataDir, AnOlderFormatIsTakenAndRaisedAndANewerOneRefused) {
  const std::string dir = testing::TempDir() + "/formats";
  const auto say = [&](const std::string& text) {
    std::ofstream(dir + "/FORMAT") << text;
  };
  const auto said = [&] {
    std::string line;
    std::ifstream file(dir + "/FORMAT");
    std::getline(file, line);
    return line;
  };
  fs::remove_all(dir);
  ASSERT_TRUE(PrepareDataDir(dir).ok());
  const std::string ours =
      "traincheckd store " + std::to_string(kStoreFormatVersion);
  EXPECT_EQ(said(), ours);
  for (int version = 1; version < kStoreFormatVersion; ++version) {
    say("traincheckd store " + std::to_string(version) + "\n");
    EXPECT_TRUE(PrepareDataDir(dir).ok());
    EXPECT_NE(said(), ours);
    EXPECT_TRUE(RaiseFormat(dir).ok());
    EXPECT_EQ(said(), ours);
  }
  const std::string newer =
      "traincheckd store " + std::to_string(kStoreFormatVersion + 1);
  say(newer + "\n");
  const absl::Status refused = PrepareDataDir(dir);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("was written by a newer traincheckd"));
  EXPECT_EQ(said(), newer);
}

// Browsers and rsync name so what they have not finished, and a backup that was
// cut short looks the same.
TEST_F(BackupTest, RemovesNothingThatItHasNotMade) {
  const std::string precious = folder_ + ".partial/precious";
  fs::create_directories(folder_ + ".partial/db");
  std::ofstream(precious) << "precious";
  EXPECT_TRUE(Backup(folder_).ok());
  EXPECT_EQ(fs::file_size(precious), 8u);
  copied_ = absl::UnavailableError("the disk has had enough");
  EXPECT_EQ(Backup(folder_ + "2").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fs::file_size(precious), 8u);
  EXPECT_TRUE(fs::exists(folder_ + ".partial/db"));
}

TEST_F(BackupTest, LeavesNothingWhenItFails) {
  copied_ = absl::UnavailableError("the disk has had enough");
  EXPECT_EQ(Backup(folder_).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(beside_meanwhile_, testing::SizeIs(1));
  EXPECT_THAT(BesideBackup(), IsEmpty());
  EXPECT_FALSE(fs::exists(folder_));
}

// Somebody takes the name while the backup is made.
TEST_F(BackupTest, TakesTheNameOfNobody) {
  const absl::Status made =
      MakeBackup(dir_, folder_, "0123456789abcdef", [&](const std::string&) {
        fs::create_directories(folder_ + "/precious");
        return absl::OkStatus();
      });
  EXPECT_EQ(made.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fs::exists(folder_ + "/precious"));
  EXPECT_THAT(BesideBackup(), IsEmpty());
}

TEST(DataDirTest, ADiskThatTakesOnlyTheBeginningSaysWhy) {
  const std::string dir = testing::TempDir() + "/data-begun";
  fs::remove_all(dir);
  // A file size limit stands for the disk.
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {.rlim_cur = 5, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = PrepareDataDir(dir);
  limit.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("cannot write to it: File too large"));
}

}  // namespace
}  // namespace traincheck::server
