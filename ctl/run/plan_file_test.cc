#include "ctl/run/plan_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctl/testing/fake_control.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;

class PlanFileTest : public testing::Test {
 protected:
  PlanFileTest()
      : folder_(fs::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    setenv("XDG_STATE_HOME", folder_.c_str(), 1);
    server_.Edit([](FakeData& data) { data.set_plan.set_json("{}"); });
    client_ = *Client::Make(server_.address());
  }
  ~PlanFileTest() override { fs::remove_all(folder_); }

  static std::string ContentOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const fs::path folder_;
  FakeControl server_;
  std::unique_ptr<Client> client_;
};

TEST_F(PlanFileTest, AppearsWholeAndAlone) {
  const auto path = FetchPlanFile(client_.get(), "s");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ContentOf(*path), "{}");
  const fs::directory_iterator files(fs::path(*path).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

// Hosts share a home, and each has a process of this number.
TEST_F(PlanFileTest, AnotherHostsProcessOfThisNumberIsNotInTheWay) {
  const auto path = FetchPlanFile(client_.get(), "s");
  ASSERT_TRUE(path.ok()) << path.status();
  fs::remove(*path);
  const std::string others = *path + "." + std::to_string(getpid());
  fs::create_directory(others);
  const auto again = FetchPlanFile(client_.get(), "s");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ContentOf(*again), "{}");
  EXPECT_TRUE(fs::exists(others));
}

}  // namespace
}  // namespace traincheck::ctl
