#include "proto/settings/settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "proto/settings/settings_file.h"
#include "proto/settings/settings_table.h"

namespace traincheck {
namespace {

// `site_file`: not that of the host on which the test runs.
std::string Load(std::vector<const char*> environment,
                 Settings* settings = nullptr,
                 const std::string& site_file = "/nowhere/site.yaml") {
  Settings own;
  environment.push_back(nullptr);
  return (settings != nullptr ? settings : &own)
      ->Load(environment.data(), site_file);
}

// A file with this text, and the variable that names it.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(testing::TempDir() + "/settings.yaml"),
        variable_("TRAINCHECK_CONFIG=" + path_) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  const char* variable() const { return variable_.c_str(); }

 private:
  const std::string path_;
  const std::string variable_;
};

TEST(SettingsOfTheEnvironment, AreRead) {
  Settings settings;
  EXPECT_EQ(
      Load({"HOME=/root", "TRAINCHECK_GRACE=5", "TRAINCHECK_RUN="}, &settings),
      "");
  EXPECT_EQ(settings.Get("TRAINCHECK_GRACE"), "5");
  EXPECT_EQ(settings.Get("TRAINCHECK_RUN"), "");
  EXPECT_EQ(settings.Get("TRAINCHECK_LOG"), "");
}

TEST(SettingsOfTheEnvironment, UnknownOnesAreNamedWithTheNearest) {
  EXPECT_EQ(Load({"TRAINCHECK_SPOOLLIMIT=1G"}),
            "unknown setting TRAINCHECK_SPOOLLIMIT; did you mean "
            "TRAINCHECK_SPOOL_LIMIT?");
  EXPECT_EQ(Load({"TRAINCHECK_SERVR=a:1"}),
            "unknown setting TRAINCHECK_SERVR; did you mean "
            "TRAINCHECK_SERVER?");
  EXPECT_NE(Load({"TRAINCHECK_"}), "");
  EXPECT_NE(Load({"TRAINCHECK_grace=1"}), "");
}

TEST(SettingsOfTheEnvironment, OthersAreNotOurs) {
  EXPECT_EQ(Load({"TRAINCHECKS=1", "XTRAINCHECK_A=1", "TRAINCHECK_TEST_A=1"}),
            "");
}

TEST(SettingsOfTheEnvironment, WrongValuesAreNamed) {
  EXPECT_EQ(Load({"TRAINCHECK_GRACE=soon"}),
            "TRAINCHECK_GRACE is \"soon\": write a whole number of seconds");
  EXPECT_EQ(Load({"TRAINCHECK_LOG=loud"}),
            "TRAINCHECK_LOG is \"loud\": write one of off, error, warning, "
            "info, debug");
  EXPECT_EQ(Load({"TRAINCHECK_BUDGET=abc"}),
            "TRAINCHECK_BUDGET is \"abc\": write a percentage of 0 to 100, or "
            "off");
}

TEST(SettingsOfTheEnvironment, AValueThatIsLongIsCut) {
  const std::string entry = "TRAINCHECK_GRACE=" + std::string(100000, 'x');
  EXPECT_LT(Load({entry.c_str()}).size(), 200u);
  const std::string name = "TRAINCHECK_" + std::string(100000, 'x');
  EXPECT_LT(Load({name.c_str()}).size(), 200u);
}

TEST(SettingsOfTheFile, AreRead) {
  const ConfigFile file(
      "# of the cluster\n\nserver: 'unix:/run/tc.sock' # here\r\n"
      "experiment: \"resnet # 2\"\nrun:\ngrace: 7   \nexit_wait: 0.5");
  Settings settings;
  EXPECT_EQ(Load({file.variable()}, &settings), "");
  EXPECT_EQ(settings.Get("TRAINCHECK_SERVER"), "unix:/run/tc.sock");
  EXPECT_EQ(settings.Get("TRAINCHECK_EXPERIMENT"), "resnet # 2");
  EXPECT_EQ(settings.Get("TRAINCHECK_RUN"), "");
  EXPECT_EQ(settings.Get("TRAINCHECK_GRACE"), "7");
  EXPECT_EQ(settings.Get("TRAINCHECK_EXIT_WAIT"), "0.5");
  EXPECT_EQ(settings.of_file().size(), 5u);
}

TEST(SettingsOfTheFile, TheEnvironmentWins) {
  const ConfigFile file("grace: 7\nrun: a\n");
  Settings settings;
  EXPECT_EQ(Load({"TRAINCHECK_GRACE=8", "TRAINCHECK_RUN=", file.variable()},
                 &settings),
            "");
  EXPECT_EQ(settings.Get("TRAINCHECK_GRACE"), "8");
  EXPECT_EQ(settings.Get("TRAINCHECK_RUN"), "");
  EXPECT_TRUE(settings.of_file().empty());
}

TEST(SettingsOfTheFile, ErrorsNameFileLineAndKey) {
  const auto load = [](const std::string& text) {
    const ConfigFile file(text);
    const std::string wrong = Load({file.variable()});
    EXPECT_EQ(wrong.rfind(file.path() + ", ", 0), 0u) << wrong;
    return wrong.substr(std::min(wrong.size(), file.path().size() + 2));
  };
  EXPECT_EQ(load("\ngrase: 1\n"),
            "line 2: unknown setting grase; did you mean grace?");
  EXPECT_EQ(load("grace: 1.5"),
            "line 1: grace is \"1.5\": write a whole number of seconds");
  EXPECT_EQ(load("agent_dir: /opt"),
            "line 1: agent_dir is read from the environment only, as "
            "TRAINCHECK_AGENT_DIR");
  EXPECT_EQ(load("run: a\nrun: b"), "line 2: run stands in line 1 too");
  EXPECT_EQ(load("run: 'a"), "line 1: the quote is not closed");
  EXPECT_NE(load("Run: a"), "");
  EXPECT_NE(load("- run: a"), "");
  EXPECT_NE(load("run:a"), "");
  EXPECT_NE(load("run: a: b"), "");
  EXPECT_NE(load("run: *a"), "");
  EXPECT_NE(load("run: 'a' b"), "");
  EXPECT_NE(load("run: \"a\\n\""), "");
  EXPECT_NE(load("run:\n  a"), "");
  EXPECT_NE(load("run:\ta"), "");
  EXPECT_NE(load("run: \xc3\xa4"), "");
  EXPECT_NE(load(std::string("run: a\0b", 8)), "");
}

TEST(SettingsOfTheFile, OnlyAFileIsRead) {
  const std::string folder = testing::TempDir();
  const std::string absent = "TRAINCHECK_CONFIG=" + folder + "/absent.yaml";
  EXPECT_NE(Load({absent.c_str()}).find("No such file"), std::string::npos);
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string variable = "TRAINCHECK_CONFIG=" + pipe;
  EXPECT_NE(Load({variable.c_str()}).find("not a file"), std::string::npos);
  std::remove(pipe.c_str());
  const ConfigFile large(std::string(kMaxSettingsFileBytes + 1, '#'));
  EXPECT_NE(Load({large.variable()}).find("larger"), std::string::npos);
  const ConfigFile fits(std::string(kMaxSettingsFileBytes, '#'));
  EXPECT_EQ(Load({fits.variable()}), "");
}

TEST(SettingsOfTheFile, NothingIsLoadedWithAnError) {
  const ConfigFile file("run: a\ngrace: x\n");
  Settings settings;
  EXPECT_NE(Load({"TRAINCHECK_LOG=off", file.variable()}, &settings), "");
  EXPECT_EQ(settings.Get("TRAINCHECK_RUN"), "");
  EXPECT_EQ(settings.Get("TRAINCHECK_LOG"), "");
}

struct Values {
  const char* name;
  std::vector<const char*> right;
  std::vector<const char*> wrong;
};

TEST(SettingsTable, KnowsWhatIsAValue) {
  const std::vector<Values> all = {
      {"DISABLE", {"", "0", "1"}, {"2", "yes", "01"}},
      {"COLLECT", {"", "0", "1", "full"}, {"Full", "0 1", "2"}},
      {"GRACE", {"0", "30", "999999999"}, {"-1", "1.5", "1e3", "9999999999"}},
      {"STOP_AFTER", {"", "1", "020"}, {"0", "00", "-1", "1.5", "x", "1e3"}},
      {"EXIT_WAIT", {"0", "0.25", "10"}, {"-1", ".5", "1.", "nan", "1e3"}},
      {"SPOOL_LIMIT",
       {"0", "12", "7K", "2G"},
       {"x", "-1", "1T", "K", "1KK", "99999999999999999G"}},
      {"SERVER",
       {"a:1", "[::1]:7471", "unix:/s"},
       {"a", "a:", ":1", "unix:", "a:65536", "a:b"}},
      {"RUN", {"a.b_c:d-1"}, {"a b", "a/b", "a@b"}},
      {"EXPERIMENT", {"anything at all"}, {}},
      {"BUDGET",
       {"off", "0", "2.5", ".5", "2.", "100", "100.0", "007"},
       {"abc", "-1", "101", "100.1", ".", "nan", "1e1", "2%", "OFF", "1.2.3"}},
  };
  for (const Values& values : all) {
    const AgentSetting* const setting = FindSetting(values.name);
    ASSERT_NE(setting, nullptr) << values.name;
    for (const char* value : values.right) {
      EXPECT_TRUE(IsAllowed(*setting, value)) << values.name << " " << value;
    }
    for (const char* value : values.wrong) {
      EXPECT_FALSE(IsAllowed(*setting, value)) << values.name << " " << value;
    }
  }
}

TEST(SettingsTable, AChoiceHasItsDefaultAmongItsWords) {
  for (const AgentSetting& setting : AllSettings()) {
    if (setting.kind == SettingKind::kText ||
        setting.kind == SettingKind::kAddress ||
        setting.kind == SettingKind::kRun ||
        setting.kind == SettingKind::kSteps ||
        setting.kind == SettingKind::kPercent) {
      continue;  // a text for people
    }
    EXPECT_TRUE(IsAllowed(setting, setting.fallback)) << setting.name;
    EXPECT_NE(setting.fallback, "") << setting.name;
  }
}

// A file with this text in place of /etc/traincheck.yaml.
class SiteFile {
 public:
  explicit SiteFile(const std::string& text)
      : path_(testing::TempDir() + "/site.yaml") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~SiteFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(SettingsOfTheSite, NeedNoVariable) {
  const SiteFile site("server: 127.0.0.1:1\ndisable: 1\n");
  Settings settings;
  EXPECT_EQ(Load({"HOME=/root"}, &settings, site.path()), "");
  EXPECT_EQ(settings.Get("TRAINCHECK_SERVER"), "127.0.0.1:1");
  EXPECT_EQ(settings.Get("TRAINCHECK_DISABLE"), "1");
  EXPECT_EQ(settings.FileOf("TRAINCHECK_DISABLE"), site.path());
  EXPECT_EQ(settings.files(), std::vector<std::string>{site.path()});
}

TEST(SettingsOfTheSite, YieldToVariablesAndToTheFileThatTheyName) {
  const SiteFile site("server: 127.0.0.1:1\ngrace: 1\nlog: debug\n");
  const ConfigFile config("grace: 2\nlog: info\n");
  Settings settings;
  EXPECT_EQ(
      Load({config.variable(), "TRAINCHECK_LOG=off"}, &settings, site.path()),
      "");
  EXPECT_EQ(settings.Get("TRAINCHECK_SERVER"), "127.0.0.1:1");
  EXPECT_EQ(settings.Get("TRAINCHECK_GRACE"), "2");
  EXPECT_EQ(settings.Get("TRAINCHECK_LOG"), "off");
  EXPECT_EQ(settings.FileOf("TRAINCHECK_SERVER"), site.path());
  EXPECT_EQ(settings.FileOf("TRAINCHECK_GRACE"), config.path());
  EXPECT_EQ(settings.FileOf("TRAINCHECK_LOG"), "");
  EXPECT_EQ(settings.of_file().size(), 2u);
}

TEST(SettingsOfTheSite, AMistakeIsNamedAndNothingIsLoaded) {
  const SiteFile site("server: 127.0.0.1:1\ndisabel: 1\n");
  Settings settings;
  EXPECT_EQ(
      Load({"TRAINCHECK_GRACE=5"}, &settings, site.path()),
      site.path() + ", line 2: unknown setting disabel; did you mean disable?");
  EXPECT_EQ(settings.Get("TRAINCHECK_GRACE"), "");
  EXPECT_TRUE(settings.of_file().empty());
  EXPECT_EQ(Load({}, nullptr, testing::TempDir()),
            testing::TempDir() + ": Is a directory");
}

}  // namespace
}  // namespace traincheck
