// `doctor` as a process.
#include <filesystem>
#include <fstream>

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

// The trial needs a folder of its own: without one nothing is tried, and
// nothing else is left out.
TEST(DoctorTest, ATemporaryFolderThatIsGoneIsAFinding) {
  namespace fs = std::filesystem;
  const fs::path agent = fs::path(testing::TempDir()) / "agent";
  fs::create_directories(agent);
  const auto copied = fs::copy_options::overwrite_existing;
  fs::copy_file("ctl/testing/libtraincheck_agent.so",
                agent / "libtraincheck_agent.so", copied);
  std::ofstream(agent / "libtraincheck_agent_core.so") << "";
  fs::copy_file("/bin/true", agent / "traincheck-relay", copied);
  Process::Options options = Ctl({"--server", kNobody, "doctor", "-o", "json"});
  options.environment = {"TRAINCHECK_AGENT_DIR=" + agent.string()};
  options.command.insert(options.command.begin(),
                         {"env", "TMPDIR=" + (agent / "gone").string()});
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.code, 1) << result.err;
  const Json findings = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(findings.is_array()) << result.out;
  int found = 0;
  for (const Json& finding : findings) {
    if (finding["check"] != "trial") continue;
    ++found;
    EXPECT_EQ(finding["state"], "fail");
    EXPECT_THAT(std::string(finding["text"]), HasSubstr("temporary folder"));
  }
  EXPECT_EQ(found, 1) << result.out;
  EXPECT_EQ(findings.back()["check"], "server");
}

}  // namespace
}  // namespace traincheck::ctl
