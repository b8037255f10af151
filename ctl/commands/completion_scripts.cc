#include "ctl/commands/completion_scripts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace traincheck::ctl {
namespace {

// The scripts share one idea: the words before the one that is typed lead to a
// command; its commands and options are what may follow. Everything else is a
// file's name. @NAME@: the program, @PATHS@: "/runs/list" of each command,
// @CANDIDATES@: for each of these what may follow.
constexpr char kBash[] = R"(# @NAME@ completion bash
_@NAME@() {
  local at="" word i candidates=""
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    [[ "$word" == "--" ]] && return
    case "$at/$word" in
      @PATHS@)
        at="$at/$word" ;;
    esac
  done
  case "$at" in
@CANDIDATES@  esac
  COMPREPLY=($(compgen -W "$candidates" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _@NAME@ @NAME@
)";
// The last lines serve both ways to load it: from a folder of zsh's functions,
// where the file is the function, and by `source`.
constexpr char kZsh[] = R"(#compdef @NAME@
# @NAME@ completion zsh
_@NAME@() {
  local at="" word
  local -i i
  local -a candidates
  for ((i = 2; i < CURRENT; i++)); do
    word="${words[i]}"
    if [[ "$word" == "--" ]]; then
      words=("${(@)words[i + 1, -1]}")
      (( CURRENT -= i ))
      _normal
      return
    fi
    case "$at/$word" in
      (@PATHS@)
        at="$at/$word" ;;
    esac
  done
  case "$at" in
@CANDIDATES@  esac
  _describe @NAME@ candidates || _files
}
if [[ "${funcstack[1]}" == _@NAME@ ]]; then
  _@NAME@ "$@"
else
  compdef _@NAME@ @NAME@
fi
)";
// `commandline -opc` has the words before the cursor, the program first.
constexpr char kFish[] = R"fish(# @NAME@ completion fish
function __@NAME@_candidates
    set -l at ""
    for word in (commandline -opc)[2..-1]
        if test "$word" = --
            return
        end
        switch "$at/$word"
            case @PATHS@
                set at "$at/$word"
        end
    end
    switch "$at"
@CANDIDATES@    end
end
complete -c @NAME@ -a "(__@NAME@_candidates)"
)fish";

struct Candidate {
  std::string word;
  std::string description;
};

// What may follow the command at `path`; "" is the program itself.
struct Place {
  std::string path;
  std::vector<Candidate> candidates;
};

void AddOptions(const CLI::App& app, std::vector<Candidate>* candidates) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) {
      Candidate candidate{absl::StrCat("--", name), option->get_description()};
      // A command and the program have some in common, as --help.
      const bool is_new = std::none_of(
          candidates->begin(), candidates->end(),
          [&](const Candidate& c) { return c.word == candidate.word; });
      if (is_new) candidates->push_back(std::move(candidate));
    }
  }
}

// A place for the program, and then one for each command with those below it.
void AddPlaces(const CLI::App& app, const std::string& path,
               std::vector<Place>* places) {
  const std::vector<const CLI::App*> commands =
      app.get_subcommands([](const CLI::App*) { return true; });
  Place place{path, {}};
  for (const CLI::App* command : commands) {
    place.candidates.push_back(
        {command->get_name(), command->get_description()});
  }
  AddOptions(app, &place.candidates);
  // Global options may stand behind any command.
  const CLI::App* root = &app;
  while (root->get_parent() != nullptr) root = root->get_parent();
  if (root != &app) AddOptions(*root, &place.candidates);
  places->push_back(place);
  for (const CLI::App* command : commands) {
    AddPlaces(*command, absl::StrCat(path, "/", command->get_name()), places);
  }
}

// The one description of the commands from which all three scripts are made.
std::vector<Place> PlacesOf(const CLI::App& root) {
  std::vector<Place> places;
  AddPlaces(root, "", &places);
  return places;
}

std::string Paths(const std::vector<Place>& places, const char* separator) {
  std::vector<std::string> paths;
  for (const Place& place : places) {
    // The program itself is where the words begin and not a path that leads on.
    if (!place.path.empty()) paths.push_back(place.path);
  }
  return absl::StrJoin(paths, separator);
}

// In one pass, so that what is put in is not searched for further names.
std::string Fill(const char* script, const CLI::App& root,
                 const std::string& paths, const std::string& candidates) {
  return absl::StrReplaceAll(script, {{"@NAME@", root.get_name()},
                                      {"@PATHS@", paths},
                                      {"@CANDIDATES@", candidates}});
}

// Between single quotes of zsh.
std::string InZsh(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"\n", " "}});
}

// Between single quotes of fish.
std::string InFish(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}, {"\n", " "}});
}

}  // namespace

std::string BashScript(const CLI::App& root) {
  const std::vector<Place> places = PlacesOf(root);
  std::string cases;
  for (const Place& place : places) {
    // bash shows words alone, without their descriptions.
    const auto append_word = [](std::string* out, const Candidate& candidate) {
      absl::StrAppend(out, candidate.word);
    };
    absl::StrAppend(&cases, "    \"", place.path, "\") candidates=\"",
                    absl::StrJoin(place.candidates, " ", append_word),
                    "\" ;;\n");
  }
  return Fill(kBash, root, Paths(places, " |\\\n      "), cases);
}

std::string ZshScript(const CLI::App& root) {
  const std::vector<Place> places = PlacesOf(root);
  std::string cases;
  for (const Place& place : places) {
    absl::StrAppend(&cases, "    (\"", place.path, "\") candidates=(\n");
    for (const Candidate& candidate : place.candidates) {
      absl::StrAppend(&cases, "      '", candidate.word, ":",
                      InZsh(candidate.description), "'\n");
    }
    absl::StrAppend(&cases, "    ) ;;\n");
  }
  return Fill(kZsh, root, Paths(places, "|"), cases);
}

std::string FishScript(const CLI::App& root) {
  const std::vector<Place> places = PlacesOf(root);
  std::string cases;
  for (const Place& place : places) {
    // fish wants a candidate and its description in a line, with a tab between.
    absl::StrAppend(&cases, "        case \"", place.path,
                    "\"\n            printf '%s\\t%s\\n'");
    for (const Candidate& candidate : place.candidates) {
      absl::StrAppend(&cases, " \\\n                '", candidate.word, "' '",
                      InFish(candidate.description), "'");
    }
    absl::StrAppend(&cases, "\n");
  }
  return Fill(kFish, root, Paths(places, " "), cases);
}

}  // namespace traincheck::ctl
