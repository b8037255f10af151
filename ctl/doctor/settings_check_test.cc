#include "ctl/doctor/settings_check.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

Finding Check(const std::string& variable) {
  const char* const environment[] = {"HOME=/", variable.c_str(), nullptr};
  return CheckSettings(environment);
}

std::string File(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

void ExpectFails(const std::string& variable, const std::string& text) {
  const Finding finding = Check(variable);
  EXPECT_EQ(finding.check, "settings");
  EXPECT_EQ(finding.health, Health::kFail) << variable;
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_NE(finding.advice, "");
}

TEST(SettingsCheckTest, SettingsWithoutMistakesAreFine) {
  for (const char* variable : {"PATH=/bin", "TRAINCHECK_GRACE=3",
                               "TRAINCHECK_DISABLE=0", "TRAINCHECK_PLAN="}) {
    EXPECT_EQ(Check(variable).health, Health::kOk) << variable;
  }
  const std::string file = File("fine.yaml", "grace: 3\n");
  EXPECT_THAT(Check("TRAINCHECK_CONFIG=" + file).text, HasSubstr(file));
}

TEST(SettingsCheckTest, MistakesAreNamed) {
  ExpectFails("TRAINCHECK_GRASE=3", "unknown setting TRAINCHECK_GRASE");
  ExpectFails("TRAINCHECK_BUDGET=abc", "TRAINCHECK_BUDGET is \"abc\"");
  ExpectFails("TRAINCHECK_CONFIG=" + File("wrong.yaml", "\ngrase: 3\n"),
              "wrong.yaml, line 2: unknown setting grase");
  ExpectFails("TRAINCHECK_PLAN=" + File("plan.json", "{}"),
              "plan.json: format: missing");
}

TEST(SettingsCheckTest, AnAgentThatIsSwitchedOffIsNotFine) {
  ExpectFails("TRAINCHECK_DISABLE=1", "is 1 in the environment");
  const std::string file = File("off.yaml", "disable: 1\n");
  ExpectFails("TRAINCHECK_CONFIG=" + file, "is 1 in " + file);
}

}  // namespace
}  // namespace traincheck::ctl
