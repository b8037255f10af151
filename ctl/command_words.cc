#include "ctl/command_words.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest.h"
#include "ctl/text/shell_quote.h"

namespace traincheck::ctl {
namespace {

// Commands that take a training's command line.
bool TakesCommandLine(const CLI::App& command) {
  return command.get_name() == "run" || command.get_name() == "preflight";
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", text, "\"");
}

std::vector<const CLI::App*> CommandsIn(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsIn(app)) {
    names.push_back(command->get_name());
  }
  return names;
}

// Null: there is none of that name.
const CLI::App* FindCommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : CommandsIn(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

// "traincheckctl runs list"
std::string PathOf(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  const std::string own = app.get_name();
  return parent == nullptr ? own : absl::StrCat(PathOf(*parent), " ", own);
}

std::string SeeHelp(const CLI::App& app) {
  return absl::StrCat("; see ", PathOf(app), " --help");
}

bool IsOption(const std::string& word) {
  return word.size() > 1 && word[0] == '-';
}

// Does the next word belong to this option? Global ones may stand anywhere.
bool TakesNextWord(const CLI::App* app, const std::string& word) {
  const bool is_long = absl::StartsWith(word, "--");
  // Its value is in the word itself: "--run=ID", "-ojson".
  if (absl::StrContains(word, "=") || (!is_long && word.size() > 2)) {
    return false;
  }
  for (; app != nullptr; app = app->get_parent()) {
    const CLI::Option* const option = app->get_option_no_throw(word);
    if (option != nullptr) return option->get_items_expected_max() > 0;
  }
  return false;
}

// "violations watch" for "watch".
// One level down is enough: no command stands deeper.
std::string DeeperCommand(const CLI::App& app, const std::string& word) {
  for (const CLI::App* group : CommandsIn(app)) {
    if (FindCommand(*group, word) != nullptr) {
      return absl::StrCat(group->get_name(), " ", word);
    }
  }
  return "";
}

std::string NotACommand(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = CommandsOf(app);
  std::string meant = NearestWord(word, names);
  if (meant.empty()) meant = DeeperCommand(app, word);
  const std::string did_you_mean =
      meant.empty() ? "" : absl::StrCat("; did you mean ", Quoted(meant), "?");
  if (app.get_parent() == nullptr) {
    return absl::StrCat(Quoted(word), " is not a command", did_you_mean,
                        did_you_mean.empty() ? SeeHelp(app) : "");
  }
  return absl::StrCat(Quoted(app.get_name()), " has no command ", Quoted(word),
                      "; it has ", absl::StrJoin(names, ", "), did_you_mean);
}

std::string NoCommand(const CLI::App& app) {
  if (app.get_parent() == nullptr) {
    return absl::StrCat("a command is missing", SeeHelp(app));
  }
  return absl::StrCat(Quoted(app.get_name()), " needs a command: ",
                      absl::StrJoin(CommandsOf(app), ", "));
}

// `at`: where the training's own words begin.
std::string NoDashes(const CLI::App& command, const Words& words, size_t at) {
  // The user's own line with the dashes where they belong, quoted so that it
  // can be copied.
  std::string line = "traincheckctl";
  for (size_t i = 0; i < words.size(); ++i) {
    absl::StrAppend(&line, i == at ? " -- " : " ", ShellQuote(words[i]));
  }
  return absl::StrCat(
      command.get_name(),
      ": the training's command line goes after \"--\": ", line);
}

// The deepest command that was given.
const CLI::App& ParsedCommand(const CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  return given.empty() ? app : ParsedCommand(*given[0]);
}

// The parser's own message names the word and no option that was meant.
std::string UnknownOption(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  // Global options may stand behind a command's name, so those of the commands
  // above are meant as well.
  for (const CLI::App* app = &command; app; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        names.push_back("--" + name);
      }
    }
  }
  // "--rnu=ID" is looked up, and reported, as "--rnu".
  const std::string typed = word.substr(0, word.find('='));
  const std::string meant = NearestWord(typed, names);
  return absl::StrCat(
      "there is no option ", Quoted(typed),
      meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"));
}

std::string Unexpected(const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> rest = app.remaining(true);
  if (rest.empty()) return "unexpected words";
  // An unknown option leaves its value over, too; the option is the mistake.
  const auto option = std::find_if(rest.begin(), rest.end(), IsOption);
  if (option != rest.end()) return UnknownOption(command, *option);
  return absl::StrCat("not expected: ", absl::StrJoin(rest, " "));
}

}  // namespace

Words WithoutHelpCommand(Words words) {
  // CLI11 knows --help alone, and would call the word unexpected.
  if (words.empty() || words[0] != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

// Walks down the tree of commands as the parser will. Options are passed over
// together with their values, which may look like commands.
std::string WhatIsWrongWithCommand(const CLI::App& app, const Words& words,
                                   bool has_dashes) {
  const CLI::App* command = &app;
  bool informs = false;  // asks for help or the version only
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (IsOption(word)) {
      informs |= word == "--help" || word == "-h" || word == "--version";
      if (TakesNextWord(command, word)) ++i;
      continue;
    }
    // A group only holds commands; a word behind it must be one of them.
    const bool group = command->get_require_subcommand_min() > 0;
    if (!group && TakesCommandLine(*command) && !has_dashes) {
      return NoDashes(*command, words, i);
    }
    // What follows are arguments of the command, which the parser checks.
    if (!group) break;
    const CLI::App* const next = FindCommand(*command, word);
    if (next == nullptr) return NotACommand(*command, word);
    command = next;
  }
  if (command->get_require_subcommand_min() > 0 && !informs) {
    return NoCommand(*command);
  }
  return "";
}

std::string ParseErrorText(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = ParsedCommand(app);
  const bool extras =
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  const std::string what = extras ? Unexpected(app, command) : error.what();
  return absl::StrCat(what, SeeHelp(command));
}

}  // namespace traincheck::ctl
