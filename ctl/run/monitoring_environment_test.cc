#include "ctl/run/monitoring_environment.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::ElementsAre;

MonitoringOptions Options() {
  MonitoringOptions options;
  options.agent_library = "/opt/agent.so";
  options.server = "127.0.0.1:7471";
  return options;
}

std::string Lines(const MonitoringOptions& options,
                  const std::string& preload = "") {
  return ShellLines(MonitoringVariables(options, preload));
}

TEST(MonitoringEnvironmentTest, TheLeast) {
  EXPECT_EQ(Lines(Options()),
            "export LD_PRELOAD=/opt/agent.so\n"
            "export TRAINCHECK_SERVER=127.0.0.1:7471\n"
            "unset TRAINCHECK_CHECK\n");
}

TEST(MonitoringEnvironmentTest, CollectExcludesAnInheritedCheck) {
  MonitoringOptions options = Options();
  options.collect = true;
  options.run = "r-1";
  options.experiment = "my model";
  EXPECT_EQ(Lines(options),
            "export LD_PRELOAD=/opt/agent.so\n"
            "export TRAINCHECK_SERVER=127.0.0.1:7471\n"
            "export TRAINCHECK_RUN=r-1\n"
            "export TRAINCHECK_EXPERIMENT='my model'\n"
            "export TRAINCHECK_COLLECT=1\n"
            "unset TRAINCHECK_CHECK\n");
}

TEST(MonitoringEnvironmentTest, CollectsInFull) {
  MonitoringOptions options = Options();
  options.collect = options.full = true;
  EXPECT_THAT(Lines(options),
              testing::HasSubstr("export TRAINCHECK_COLLECT=full\n"));
}

TEST(MonitoringEnvironmentTest, CheckExcludesAnInheritedCollect) {
  MonitoringOptions options = Options();
  options.check_set = "s";
  options.agent_library = "";
  EXPECT_EQ(Lines(options),
            "export TRAINCHECK_SERVER=127.0.0.1:7471\n"
            "export TRAINCHECK_CHECK=s\n"
            "unset TRAINCHECK_COLLECT\n");
}

TEST(MonitoringEnvironmentTest, GoesBeforeAnotherPreload) {
  EXPECT_THAT(Lines(Options(), "/lib/a.so"),
              testing::StartsWith("export LD_PRELOAD=/opt/agent.so:/lib/a.so"));
  EXPECT_THAT(
      Lines(Options(), "/opt/agent.so:/lib/a.so"),
      testing::StartsWith("export LD_PRELOAD=/opt/agent.so:/lib/a.so\n"));
}

TEST(MonitoringEnvironmentTest, ChangesOnlyWhatItNames) {
  const char* const base[] = {"A=1", "B=2=3", "AB=", "C=4", nullptr};
  EXPECT_THAT(
      ChangedEnvironment(base, {{"A", "9"}, {"C", std::nullopt}, {"D", ""}}),
      ElementsAre("B=2=3", "AB=", "A=9", "D="));
}

}  // namespace
}  // namespace traincheck::ctl
