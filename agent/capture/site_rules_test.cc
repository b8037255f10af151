#include "agent/capture/site_rules.h"

#include <gtest/gtest.h>

namespace traincheck::agent {
namespace {

class SiteRulesTest : public testing::Test {
 protected:
  void SetUp() override {
    rules_.AddLibraryFolder("/usr/lib/python3.11");
    rules_.AddLibraryFolder("/opt/torch/");
    rules_.AddLibraryFolder("");
  }
  SiteRules rules_;
};

TEST_F(SiteRulesTest, ScriptsAndTypedCodeAreTheUsers) {
  EXPECT_TRUE(rules_.IsUserFile("/home/a/train.py"));
  EXPECT_TRUE(rules_.IsUserFile("train.py"));
  EXPECT_TRUE(rules_.IsUserFile("<string>"));
  EXPECT_TRUE(rules_.IsUserFile("<stdin>"));
  EXPECT_TRUE(rules_.IsUserFile("/tmp/ipykernel_7/123.py"));
}

TEST_F(SiteRulesTest, LibrariesAreNot) {
  EXPECT_FALSE(rules_.IsUserFile("/usr/lib/python3.11/runpy.py"));
  EXPECT_FALSE(rules_.IsUserFile("/opt/torch/nn/modules/module.py"));
  EXPECT_FALSE(rules_.IsUserFile("/env/lib/python3.11/site-packages/x/y.py"));
  EXPECT_FALSE(rules_.IsUserFile("/usr/lib/python3/dist-packages/x.py"));
  EXPECT_FALSE(rules_.IsUserFile("<frozen runpy>"));
  EXPECT_FALSE(rules_.IsUserFile("<traincheck/hooks/ddp>"));
}

TEST_F(SiteRulesTest, OnlyWholeFoldersMatch) {
  EXPECT_TRUE(rules_.IsUserFile("/opt/torchvision_examples/train.py"));
  EXPECT_TRUE(rules_.IsUserFile("/usr/lib/python3.11x/train.py"));
}

}  // namespace
}  // namespace traincheck::agent
