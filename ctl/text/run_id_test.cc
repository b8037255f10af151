#include "ctl/text/run_id.h"

#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

constexpr uint64_t kNow = 1'772'355'907'042'999'999;

TEST(RunIdTest, NamesTheProgram) {
  EXPECT_EQ(ProgramName({"python", "a/train_cnn.py", "--lr", "x.py"}),
            "train_cnn");
  EXPECT_EQ(ProgramName({"torchrun", "--nproc-per-node", "2", "mlp.py"}),
            "mlp");
  EXPECT_EQ(ProgramName({"python", "-m", "pkg.train", "-v"}), "pkg.train");
  EXPECT_EQ(ProgramName({"/bin/sh", "-c", "true"}), "sh");
  EXPECT_EQ(ProgramName({"python", "-m"}), "python");
  EXPECT_EQ(ProgramName({}), "run");
}

TEST(RunIdTest, NameTimeAndTwelveHexDigits) {
  EXPECT_EQ(NewRunId("cnn", kNow, 0x0a1f'5678'9abc),
            "cnn-20260301-090507-0a1f56789abc");
  EXPECT_EQ(NewRunId("cnn", kNow, ~uint64_t{0}),
            "cnn-20260301-090507-ffffffffffff");
}

TEST(RunIdTest, WhatItMakesItAccepts) {
  for (const char* name :
       {"my model/v2", "", "-x", ".hidden", "\xc3\xa9", "'"}) {
    EXPECT_TRUE(CheckRunId(NewRunId(name, kNow, 1)).ok()) << name;
  }
  EXPECT_TRUE(CheckRunId(NewRunId(std::string(500, 'x'), kNow, 1)).ok());
}

TEST(RunIdTest, RefusesIdsThatWouldNeedCare) {
  EXPECT_TRUE(CheckRunId("12345.0").ok());
  for (const std::string& id :
       {std::string(), std::string("a b"), std::string("a/b"),
        std::string("a@b"), std::string("-x"), std::string("a\0b", 3),
        std::string(129, 'a')}) {
    EXPECT_EQ(CheckRunId(id).code(), absl::StatusCode::kInvalidArgument) << id;
  }
}

}  // namespace
}  // namespace traincheck::ctl
