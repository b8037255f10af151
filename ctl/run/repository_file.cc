#include "ctl/run/repository_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest.h"
#include "base/printable_text.h"
#include "ctl/text/input_file.h"
#include "invariants/sets/set_ref.h"
#include "yaml-cpp/yaml.h"

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;

// People write the file by hand; a larger one is a mistake.
constexpr size_t kMaxBytes = 64 << 10;
// Every id travels in TRAINCHECK_CHECK with each process (Without), and the
// server is asked for each (WarnOfUnknown).
constexpr size_t kMaxSilenced = 40;
constexpr char kForm[] =
    "write \"silence:\" and below it, for each rule, \"- rule: ID\" and "
    "\"reason: TEXT\"";

// Throws YAML::Exception, as yaml-cpp does for what it cannot read: whoever
// calls it has the place from there.
[[noreturn]] void Refuse(const YAML::Node& node, const std::string& what) {
  throw YAML::RepresentationException(node.Mark(), what);
}

std::string Text(const YAML::Node& node, const std::string& key) {
  // Numbers are scalars as well, and are taken as they are written.
  if (!node.IsScalar() || node.Scalar().empty()) {
    Refuse(node, absl::StrCat(key, " is not a text"));
  }
  // These texts go into environments, messages and terminals of everybody who
  // works in the repository.
  if (!IsPrintable(node.Scalar())) {
    Refuse(node, absl::StrCat(key, " has characters that cannot be printed"));
  }
  return node.Scalar();
}

bool Flag(const YAML::Node& node, const std::string& key) {
  bool value = false;
  if (!YAML::convert<bool>::decode(node, value)) {
    Refuse(node, absl::StrCat(key, " is neither true nor false"));
  }
  return value;
}

// One set, or a list of sets.
std::string Sets(const YAML::Node& node) {
  std::vector<std::string> sets;
  if (node.IsSequence()) {
    for (const YAML::Node& set : node) sets.push_back(Text(set, "check"));
  } else {
    sets.push_back(Text(node, "check"));
  }
  const std::string text = absl::StrJoin(sets, ",");
  // Parsed here already, where the line of a mistake is known. The text goes on
  // as it is.
  const auto selection = ParseSelection(text);
  if (!selection.ok()) {
    Refuse(node, absl::StrCat("check: ", selection.status().message()));
  }
  if (!selection->without.empty()) {
    Refuse(node,
           absl::StrCat("check leaves rules out, without a reason: ", kForm));
  }
  return text;
}

// What a selection can hold behind "-". Any other character, such as a comma,
// would change the meaning of the selection that Without makes of it.
bool IsId(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
}

// Both keys are needed, in any order.
SilencedRule Silenced(const YAML::Node& node) {
  SilencedRule silenced;
  if (!node.IsMap()) Refuse(node, kForm);
  for (const auto& entry : node) {
    const std::string key = Text(entry.first, "a key");
    if (key == "rule") {
      silenced.rule = Text(entry.second, key);
    } else if (key == "reason") {
      silenced.reason = Text(entry.second, key);
    } else {
      Refuse(entry.first,
             absl::StrCat("\"", key, "\" is not known here: ", kForm));
    }
  }
  if (!IsId(silenced.rule)) Refuse(node, kForm);
  if (silenced.reason.empty()) {
    Refuse(node, absl::StrCat("rule ", silenced.rule,
                              " is silenced without a reason: somebody will "
                              "want to know it"));
  }
  return silenced;
}

std::vector<SilencedRule> AllSilenced(const YAML::Node& node) {
  if (!node.IsSequence()) Refuse(node, kForm);
  std::vector<SilencedRule> all;
  for (const YAML::Node& one : node) all.push_back(Silenced(one));
  // So many are not exceptions any more, and the message names other ways.
  if (all.size() > kMaxSilenced) {
    Refuse(node, absl::StrCat("more than ", kMaxSilenced,
                              " rules are silenced: disable them on the "
                              "server, or leave the built-in ones out"));
  }
  return all;
}

// A key that is not known is an error: a mistyped one would leave rules of a
// whole team unchecked.
void Take(const YAML::Node& key_node, const YAML::Node& value,
          RepositoryFile* file) {
  const std::string key = Text(key_node, "a key");
  if (key == "experiment") {
    file->experiment = Text(value, key);
  } else if (key == "check") {
    file->check = Sets(value);
  } else if (key == "builtin") {
    file->builtin = Flag(value, key);
  } else if (key == "silence") {
    file->silenced = AllSilenced(value);
  } else {
    const std::string near =
        NearestWord(key, {"experiment", "check", "builtin", "silence"});
    Refuse(key_node,
           absl::StrCat("\"", key, "\" is not a key of this file",
                        near.empty() ? "" : "; the nearest is ", near));
  }
}

RepositoryFile Parse(const std::string& text) {
  RepositoryFile file;
  // Throws for what is not YAML; Read catches it with the line.
  const YAML::Node document = YAML::Load(text);
  if (document.IsNull()) return file;  // comments alone
  if (!document.IsMap()) {
    Refuse(document, "it is not a list of lines \"key: value\"");
  }
  std::set<std::string> keys;
  for (const auto& entry : document) {
    // yaml-cpp takes a key twice without a word, and somebody's rules would be
    // left out unseen.
    if (entry.first.IsScalar() && !keys.insert(entry.first.Scalar()).second) {
      Refuse(entry.first,
             absl::StrCat("\"", entry.first.Scalar(), "\" is there twice"));
    }
    Take(entry.first, entry.second, &file);
  }
  return file;
}

absl::StatusOr<RepositoryFile> Read(const fs::path& path) {
  absl::StatusOr<std::string> text = ReadInputFile(path.string());
  if (!text.ok()) return text.status();
  if (text->size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), " has ", text->size(),
                     " bytes, such a file has at most ", kMaxBytes));
  }
  // The exceptions of yaml-cpp, and of Refuse, go no further than this.
  try {
    RepositoryFile file = Parse(*text);
    file.path = path.string();
    return file;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), ", line ", error.mark.line + 1, ": ",
                     EscapeUnprintable(error.msg)));
  }
}

bool Exists(const fs::path& path) {
  std::error_code error;  // what cannot be looked at is not there
  return fs::exists(path, error);
}

}  // namespace

absl::StatusOr<RepositoryFile> FindRepositoryFile(const fs::path& folder) {
  // All folders up to the root first, then the file from the nearest on:
  // whether there is a repository at all shows only at its root.
  std::vector<fs::path> folders{folder};
  while (!Exists(folders.back() / ".git") &&
         folders.back() != folders.back().parent_path()) {
    folders.push_back(folders.back().parent_path());
  }
  if (!Exists(folders.back() / ".git")) folders.resize(1);
  for (const fs::path& candidate : folders) {
    const fs::path path = candidate / kRepositoryFile;
    // The nearest file counts alone: files of folders above are not merged into
    // it.
    if (Exists(path)) return Read(path);
  }
  return RepositoryFile();
}

}  // namespace traincheck::ctl
