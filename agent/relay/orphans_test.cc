// Which spool files of others a relay looks into.
#include "agent/relay/orphans.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "agent/relay/folder_watch_for_testing.h"
#include "agent/relay/identity.h"
#include "agent/relay/limits.h"
#include "agent/relay/process_liveness.h"
#include "agent/relay/spool_file.h"

namespace traincheck::agent {
namespace {

class OrphansTest : public testing::Test {
 protected:
  OrphansTest() {
    char name[] = "/tmp/orphans-test-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~OrphansTest() override { std::filesystem::remove_all(folder_); }

  // A file whose relay is gone.
  void Leave(const v1::ProcessIdentity& process) {
    SpoolDirectory directory(SpoolPlacesIn(folder_, geteuid()), 1 << 30);
    v1::Hello hello;
    *hello.mutable_process() = process;
    ASSERT_TRUE(SpoolFile::Create(&directory, SpoolName(process),
                                  hello.SerializeAsString())
                    .ok());
  }

  static v1::ProcessIdentity Living() {
    v1::ProcessIdentity process;
    process.set_host(HostName());
    process.set_boot_id(BootId());
    process.set_pid(static_cast<uint32_t>(getpid()));
    process.set_start_ticks(StartTicks(process.pid()).value());
    process.set_image(7);
    return process;
  }

  std::string folder_;
};

TEST_F(OrphansTest, FilesOfOtherProcessesAreOpenedAtMostOnce) {
  constexpr int kElsewhere = 20;
  for (int i = 0; i < kElsewhere; ++i) {
    v1::ProcessIdentity process = Living();
    process.set_host("elsewhere");
    process.set_boot_id("another-boot");
    process.set_pid(static_cast<uint32_t>(100 + i));
    Leave(process);
  }
  for (int i = 0; i < 20; ++i) {
    v1::ProcessIdentity process = Living();
    process.set_image(static_cast<uint64_t>(8 + i));
    Leave(process);
  }
  SpoolDirectory directory(SpoolPlacesIn(folder_, geteuid()), 1 << 30);
  Orphans orphans(&directory, {});
  Orphans::TimePoint now{std::chrono::hours(1)};
  FolderWatch watch(folder_);
  orphans.Turn(now, /*streaming=*/true);
  EXPECT_EQ(watch.TakeOpened().files, kElsewhere);
  for (int scan = 0; scan < 5; ++scan) {
    now += kOrphanScanPeriod;
    orphans.Turn(now, /*streaming=*/true);
    const FolderWatch::Opened opened = watch.TakeOpened();
    EXPECT_GE(opened.folder, 1);
    EXPECT_EQ(opened.files, 0);
  }
  EXPECT_FALSE(orphans.busy());
}

// Its name alone has said that its process lives.
TEST_F(OrphansTest, AFileWhoseProcessDiesMeanwhileIsOpened) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  v1::ProcessIdentity process = Living();
  process.set_pid(static_cast<uint32_t>(child));
  process.set_start_ticks(StartTicks(process.pid()).value());
  Leave(process);
  SpoolDirectory directory(SpoolPlacesIn(folder_, geteuid()), 1 << 30);
  Orphans orphans(&directory, {});
  Orphans::TimePoint now{std::chrono::hours(1)};
  FolderWatch watch(folder_);
  orphans.Turn(now, /*streaming=*/true);
  EXPECT_EQ(watch.TakeOpened().files, 0);
  // Somebody still holds the file: it is looked into, and not taken.
  auto held = SpoolFile::Open(&directory, directory.Files().at(0));
  ASSERT_TRUE(held.ok()) << held.status();
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  watch.TakeOpened();
  now += kOrphanScanPeriod;
  orphans.Turn(now, /*streaming=*/true);
  EXPECT_GE(watch.TakeOpened().files, 1);
}

}  // namespace
}  // namespace traincheck::agent
