#include "ctl/run/repository_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;

class RepositoryFileTest : public testing::Test {
 protected:
  RepositoryFileTest()
      : root_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "repo" / "train" / "vision");
  }

  void Write(const fs::path& folder, const std::string& text) {
    std::ofstream(root_ / folder / kRepositoryFile) << text;
  }
  void MakeRepository() { fs::create_directory(root_ / "repo" / ".git"); }
  RepositoryFile Find(const fs::path& folder) {
    const auto file = FindRepositoryFile(root_ / folder);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *file : RepositoryFile();
  }
  std::string Wrong(const std::string& text) {
    Write("repo", text);
    const auto file = FindRepositoryFile(root_ / "repo");
    EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << text;
    return std::string(file.status().message());
  }

  const fs::path root_;
};

TEST_F(RepositoryFileTest, SaysExperimentSetsAndSilencedRules) {
  Write("repo",
        "# for all of us\n"
        "experiment: vision/resnet\n"
        "check: [team, resnet@3]\n"
        "builtin: false\n"
        "silence:\n"
        "  - rule: 51df97ea403bb4bf\n"
        "    reason: our curriculum repeats samples\n"
        "  - {rule: a083b2abc44315a2, reason: \"meant, see #12\"}\n");
  const RepositoryFile file = Find("repo");
  EXPECT_EQ(file.path, (root_ / "repo" / kRepositoryFile).string());
  EXPECT_EQ(file.experiment, "vision/resnet");
  EXPECT_EQ(file.check, "team,resnet@3");
  EXPECT_EQ(file.builtin, false);
  ASSERT_EQ(file.silenced.size(), 2u);
  EXPECT_EQ(file.silenced[0].rule, "51df97ea403bb4bf");
  EXPECT_EQ(file.silenced[1].reason, "meant, see #12");
}

TEST_F(RepositoryFileTest, CommentsAloneSayNothing) {
  Write("repo", "# to be filled\n");
  EXPECT_EQ(Find("repo").experiment, "");
}

TEST_F(RepositoryFileTest, IsLookedForUpToTheRootOfTheRepository) {
  Write("", "experiment: of a stranger\n");
  MakeRepository();
  EXPECT_EQ(Find("repo/train/vision").path, "");
  Write("repo", "experiment: all\n");
  EXPECT_EQ(Find("repo/train/vision").experiment, "all");
  Write("repo/train", "experiment: nearer\n");
  EXPECT_EQ(Find("repo/train/vision").experiment, "nearer");
}

TEST_F(RepositoryFileTest, WithoutARepositoryOnlyTheFolderItselfCounts) {
  Write("repo", "experiment: here\n");
  EXPECT_EQ(Find("repo").experiment, "here");
  EXPECT_EQ(Find("repo/train").path, "");
}

TEST_F(RepositoryFileTest, WhatIsWrongIsNamedWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"experiment: a\nexperimant: b\n",
       "line 2: \"experimant\" is not a key of this file; the nearest is "
       "experiment"},
      {"check: a,b,a\n", "names the set a twice"},
      {"check: [a, -b]\n", "leaves rules out, without a reason"},
      {"check: {a: b}\n", "line 1: check is not a text"},
      {"builtin: maybe\n", "builtin is neither true nor false"},
      {"- a\n", "it is not a list of lines"},
      {"a: b: c\n", "line 1: "},
      {"experiment: a\nexperiment: b\n", "\"experiment\" is there twice"},
      {"experiment: \"a\\u0007\"\n", "cannot be printed"},
      {"silence: x\n", "- rule: ID"},
      {"silence:\n  - rule: a\n", "is silenced without a reason"},
      {"silence:\n  - reason: because\n", "- rule: ID"},
      {"silence:\n  - rule: a,b\n    reason: c\n", "- rule: ID"},
      {"silence:\n  - rule: a\n    why: c\n", "\"why\" is not known here"},
  };
  for (const auto& [text, what] : cases) {
    const std::string message = Wrong(text);
    EXPECT_NE(message.find(what), std::string::npos) << text << message;
    EXPECT_NE(message.find(kRepositoryFile), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace traincheck::ctl
