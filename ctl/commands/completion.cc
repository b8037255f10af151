#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/commands/commands.h"
#include "ctl/exit_codes.h"

namespace traincheck::ctl {
namespace {

// The words before the one that is typed give the command; its commands and
// options are what may follow. Everything else is a file's name.
constexpr char kHead[] = R"(# traincheckctl completion bash
_traincheckctl() {
  local path="" word i candidates=""
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    [[ "$word" == "--" ]] && return
    case "$path/$word" in
)";
constexpr char kMiddle[] = R"(        path="$path/$word" ;;
    esac
  done
  case "$path" in
)";
constexpr char kTail[] = R"(  esac
  COMPREPLY=($(compgen -W "$candidates" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _traincheckctl traincheckctl
)";

std::vector<const CLI::App*> CommandsIn(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

void AddOptionNames(const CLI::App& app, std::vector<std::string>* names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names->push_back("--" + name);
    }
  }
}

// "/runs/list" of each command below `app`.
void AddPaths(const CLI::App& app, const std::string& path,
              std::vector<std::string>* paths) {
  for (const CLI::App* command : CommandsIn(app)) {
    const std::string below = absl::StrCat(path, "/", command->get_name());
    paths->push_back(below);
    AddPaths(*command, below, paths);
  }
}

// A line of `case` for `app` and each command below it.
void AddCandidates(const CLI::App& app, const std::string& path,
                   std::string* lines) {
  std::vector<std::string> words;
  for (const CLI::App* command : CommandsIn(app)) {
    words.push_back(command->get_name());
  }
  AddOptionNames(app, &words);
  // Global options may stand behind any command.
  if (app.get_parent() != nullptr) {
    words.insert(words.end(), {"--server", "--output"});
  }
  absl::StrAppend(lines, "    \"", path, "\") candidates=\"",
                  absl::StrJoin(words, " "), "\" ;;\n");
  for (const CLI::App* command : CommandsIn(app)) {
    AddCandidates(*command, absl::StrCat(path, "/", command->get_name()),
                  lines);
  }
}

std::string BashScript(const CLI::App& root) {
  std::vector<std::string> paths;
  AddPaths(root, "", &paths);
  std::string candidates;
  AddCandidates(root, "", &candidates);
  return absl::StrCat(kHead, "      ", absl::StrJoin(paths, " |\\\n      "),
                      ")\n", kMiddle, candidates, kTail);
}

}  // namespace

void AddCompletion(CLI::App* completion, const Context* context,
                   Action* action) {
  const CLI::App* const root = completion->get_parent();
  // There is one shell: the parser's check is all that its name is for.
  completion->add_option("SHELL", "bash")
      ->type_name("TEXT")
      ->required()
      ->check(CLI::IsMember({"bash"}));
  completion->footer(
      "Example:\n"
      "  source <(traincheckctl completion bash)      # in ~/.bashrc");
  completion->callback([=] {
    *action = [=] {
      std::cout << BashScript(*root) << std::flush;
      return kExitDone;
    };
  });
}

}  // namespace traincheck::ctl
