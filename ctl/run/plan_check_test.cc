#include "ctl/run/plan_check.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string Wrong(const std::string& text) {
  const std::string path = testing::TempDir() + "/plan.json";
  std::ofstream(path, std::ios::binary) << text;
  return WhatIsWrongWithPlan(path);
}

TEST(PlanCheckTest, APlanIsFine) {
  EXPECT_EQ(Wrong(R"({"format": 1, "calls": [{"function": "torch.add"}]})"),
            "");
}

TEST(PlanCheckTest, NamesFilePlaceAndWhatToDo) {
  EXPECT_THAT(Wrong("import torch\n"),
              AllOf(StartsWith("plan " + testing::TempDir()),
                    HasSubstr("plan.json, line 1, column 1: document: not "
                              "valid JSON"),
                    HasSubstr("docs/capture-plan.md")));
  EXPECT_THAT(Wrong("{\n  \"format\": 1,\n}"), HasSubstr("line 3, column 1: "));
  EXPECT_THAT(Wrong(R"({"format": 1, "calls": [{}]})"),
              HasSubstr("plan.json: calls[0].function: missing"));
  EXPECT_THAT(Wrong(R"({"format": 1, "cals": []})"), HasSubstr("cals"));
  EXPECT_THAT(Wrong(""), HasSubstr("not valid JSON"));
}

TEST(PlanCheckTest, OnlyARegularFileIsRead) {
  EXPECT_THAT(WhatIsWrongWithPlan("/no/such.json"),
              StartsWith("plan /no/such.json: No such file"));
  EXPECT_THAT(WhatIsWrongWithPlan("/"), HasSubstr("not a regular file"));
  EXPECT_THAT(Wrong(std::string((1 << 20) + 1, ' ')), HasSubstr("at most"));
}

}  // namespace
}  // namespace traincheck::ctl
