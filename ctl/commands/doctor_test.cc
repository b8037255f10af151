// `doctor` as a process.
#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

TEST(DoctorTest, LooksAtTheSettingsFirst) {
  for (const char* variable : {"TRAINCHECK_DISABLE=1", "TRAINCHECK_GRASE=3"}) {
    Process::Options options =
        Ctl({"--server", kNobody, "doctor", "-o", "json"});
    options.environment.push_back(variable);
    const ProcessResult result = RunProcess(options);
    EXPECT_EQ(result.code, 1) << variable;
    const Json findings = Json::parse(result.out, nullptr, false);
    ASSERT_TRUE(findings.is_array()) << result.out;
    EXPECT_EQ(findings[0]["check"], "settings");
    EXPECT_EQ(findings[0]["state"], "fail");
    const std::string name = std::string(variable).substr(0, 16);
    EXPECT_THAT(std::string(findings[0]["text"]), HasSubstr(name));
  }
}

}  // namespace
}  // namespace traincheck::ctl
