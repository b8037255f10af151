#include "ctl/command_words.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

class CommandWordsTest : public testing::Test {
 protected:
  CommandWordsTest() {
    app_.name("traincheckctl");
    app_.add_option("--server,-s", server_);
    app_.require_subcommand(1);
    CLI::App* violations = app_.add_subcommand("violations");
    violations->require_subcommand(1);
    CLI::App* list = violations->add_subcommand("list");
    list->add_option("--limit", limit_);
    violations->add_subcommand("watch");
    CLI::App* run = app_.add_subcommand("run");
    run->add_flag("--collect", collect_);
    run->add_option("--check", set_);
  }

  std::string Wrong(const Words& words, bool has_dashes = false) {
    return WhatIsWrongWithCommand(app_, words, has_dashes);
  }

  std::string Refused(Words words) {
    for (CLI::App* app : {&app_, app_.get_subcommand("violations")}) {
      for (CLI::App* command : app->get_subcommands({})) command->fallthrough();
    }
    std::reverse(words.begin(), words.end());
    try {
      app_.parse(words);
    } catch (const CLI::ParseError& error) {
      return ParseErrorText(app_, error);
    }
    return "";
  }

  CLI::App app_;
  std::string server_;
  std::string set_;
  int limit_ = 0;
  bool collect_ = false;
};

TEST_F(CommandWordsTest, CommandsAreFine) {
  EXPECT_EQ(Wrong({"violations", "list"}), "");
  EXPECT_EQ(Wrong({"--server", "list", "violations", "-s", "x", "list", "y"}),
            "");
  EXPECT_EQ(Wrong({"--server=x", "violations", "watch"}), "");
  EXPECT_EQ(Wrong({"--help"}), "");
  EXPECT_EQ(Wrong({"violations", "--help"}), "");
  EXPECT_EQ(Wrong({"--version"}), "");
  EXPECT_EQ(Wrong({"run", "--check", "s", "--collect"}, true), "");
}

TEST_F(CommandWordsTest, OthersAreNamedWithWhatWasMeant) {
  EXPECT_EQ(Wrong({"rnu"}), "\"rnu\" is not a command; did you mean \"run\"?");
  EXPECT_EQ(Wrong({"-s", "x", "rnu", "--help"}),
            "\"rnu\" is not a command; did you mean \"run\"?");
  EXPECT_EQ(Wrong({"watch", "--help"}),
            "\"watch\" is not a command; did you mean \"violations watch\"?");
  EXPECT_EQ(Wrong({"violation", "list"}),
            "\"violation\" is not a command; did you mean \"violations\"?");
  EXPECT_EQ(Wrong({"deploy"}),
            "\"deploy\" is not a command; see traincheckctl --help");
  EXPECT_EQ(Wrong({"violations", "delete", "v1"}),
            "\"violations\" has no command \"delete\"; it has list, watch");
  EXPECT_EQ(Wrong({"violations", "lst"}),
            "\"violations\" has no command \"lst\"; it has list, watch; did "
            "you mean \"list\"?");
}

TEST_F(CommandWordsTest, AMissingCommandIsSaid) {
  EXPECT_EQ(Wrong({}), "a command is missing; see traincheckctl --help");
  EXPECT_EQ(Wrong({"violations"}),
            "\"violations\" needs a command: list, watch");
}

TEST_F(CommandWordsTest, ATrainingWithoutDashes) {
  EXPECT_EQ(Wrong({"run", "--check", "s", "python", "x.py", "-o", "a b"}),
            "run: the training's command line goes after \"--\": "
            "traincheckctl run --check s -- python x.py -o 'a b'");
  EXPECT_THAT(Wrong({"run", "--collect", "python"}),
              HasSubstr("run --collect -- python"));
}

TEST_F(CommandWordsTest, WhatTheParserRefusesIsSaidInOrder) {
  EXPECT_EQ(Refused({"violations", "watch", "a", "b"}),
            "not expected: a b; see traincheckctl violations watch --help");
  EXPECT_EQ(Refused({"violations", "list", "--limt=3"}),
            "there is no option \"--limt\"; did you mean --limit?; see "
            "traincheckctl violations list --help");
  EXPECT_THAT(Refused({"violations", "list", "--limit", "x"}),
              HasSubstr("--limit"));
}

TEST_F(CommandWordsTest, HelpIsACommandToo) {
  EXPECT_EQ(WithoutHelpCommand({"help"}), Words({"--help"}));
  EXPECT_EQ(WithoutHelpCommand({"help", "runs", "list"}),
            Words({"runs", "list", "--help"}));
  EXPECT_EQ(WithoutHelpCommand({"runs", "help"}), Words({"runs", "help"}));
}

}  // namespace
}  // namespace traincheck::ctl
