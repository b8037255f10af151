#include "base/private_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace traincheck {
namespace {

using testing::HasSubstr;

class PrivateFile : public testing::Test {
 protected:
  PrivateFile()
      : folder_(testing::TempDir() + "/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        path_(folder_ + "/secret") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  const std::string folder_;
  const std::string path_;
};

TEST_F(PrivateFile, IsReadAsItWasWritten) {
  ASSERT_TRUE(WritePrivateFile(path_, "one").ok());
  ASSERT_TRUE(WritePrivateFile(path_, "two").ok());
  EXPECT_EQ(*ReadPrivateFile(path_), "two");
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  // Nothing stays beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(PrivateFile, StaysAsItIsIfTheDiskTakesOnlyItsBeginning) {
  ASSERT_TRUE(WritePrivateFile(path_, "one").ok());
  // A file size limit stands for the disk.
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  errno = 0;
  const absl::Status status = WritePrivateFile(path_, std::string(200, 'x'));
  limit.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THAT(status.message(), HasSubstr("File too large"));
  EXPECT_EQ(*ReadPrivateFile(path_), "one");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(PrivateFile, ThatOthersMayReadIsRefused) {
  ASSERT_TRUE(WritePrivateFile(path_, "text").ok());
  for (const mode_t mode : {0640, 0604, 0620, 0602}) {
    chmod(path_.c_str(), mode);
    const absl::Status status = ReadPrivateFile(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(status.message(), HasSubstr("chmod 600"));
    EXPECT_THAT(status.message(), HasSubstr(path_));
  }
}

TEST_F(PrivateFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_TRUE(WritePrivateFile(path_, "text").ok());
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(ReadPrivateFile(path_).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(PrivateFile, ThatIsNotAFileOfSmallSizeIsRefused) {
  EXPECT_TRUE(absl::IsNotFound(ReadPrivateFile(path_).status()));
  EXPECT_FALSE(ReadPrivateFile(folder_).ok());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(ReadPrivateFile(path_).ok());
  ASSERT_TRUE(WritePrivateFile(path_, std::string(70'000, 'x')).ok());
  EXPECT_FALSE(ReadPrivateFile(path_).ok());
}

TEST_F(PrivateFile, TakesThePlaceOfALinkAndDoesNotFollowIt) {
  const std::string other = folder_ + "/other";
  std::ofstream(other) << "precious";
  ASSERT_EQ(symlink(other.c_str(), path_.c_str()), 0);
  ASSERT_TRUE(WritePrivateFile(path_, "text").ok());
  std::string kept;
  std::ifstream(other) >> kept;
  EXPECT_EQ(kept, "precious");
  EXPECT_EQ(*ReadPrivateFile(path_), "text");
}

}  // namespace
}  // namespace traincheck
