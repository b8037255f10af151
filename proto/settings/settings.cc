#include "proto/settings/settings.h"

#include <unistd.h>

#include <algorithm>

#include "proto/settings/settings_file.h"
#include "proto/settings/settings_table.h"

namespace traincheck {
namespace {

constexpr size_t kMaxShownBytes = 64;  // of a value

// Not std::tolower, which depends on the program's locale.
std::string Lower(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string Upper(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return upper;
}

std::string Variable(std::string_view name) {
  return std::string(kSettingPrefix) + std::string(name);
}

std::string NotAllowed(const std::string& name, std::string_view value,
                       const AgentSetting& setting) {
  return name + " is \"" + std::string(value.substr(0, kMaxShownBytes)) +
         "\": write " + AllowedValues(setting);
}

// A misspelt setting would otherwise be ignored without a word.
std::string Unknown(const std::string& name, const std::string& nearest) {
  return "unknown setting " + name + "; did you mean " + nearest + "?";
}

std::string CheckVariable(std::string_view name, std::string_view value) {
  const AgentSetting* const setting = FindSetting(name);
  if (setting == nullptr) {
    return Unknown(Variable(name.substr(0, kMaxShownBytes)),
                   Variable(NearestSetting(name)));
  }
  if (IsAllowed(*setting, value)) return "";
  return NotAllowed(Variable(name), value, *setting);
}

bool Has(const std::vector<std::pair<std::string, std::string>>& rows,
         std::string_view variable) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& row) { return row.first == variable; });
}

std::string CheckLine(const SettingsLine& line) {
  const std::string name = Upper(line.key);
  const AgentSetting* const setting = FindSetting(name);
  if (setting == nullptr) {
    return Unknown(line.key.substr(0, kMaxShownBytes),
                   Lower(NearestSetting(name)));
  }
  if (!setting->in_file) {
    return line.key + " is read from the environment only, as " +
           Variable(name);
  }
  if (IsAllowed(*setting, line.value)) return "";
  return NotAllowed(line.key, line.value, *setting);
}

}  // namespace

// "": done. A wrong setting turns the agent off as a whole: no part of the
// settings is used.
std::string Settings::Load(const char* const* environment,
                           const std::string& site_file) {
  std::string wrong = LoadEnvironment(environment);
  // Only the environment can name it: no file has been read yet.
  const std::string path = Get("TRAINCHECK_CONFIG");
  if (wrong.empty() && !path.empty()) {
    wrong = LoadFile(path, "TRAINCHECK_CONFIG: ");
  }
  // One call in trainings of hosts that have none.
  if (wrong.empty() && access(site_file.c_str(), F_OK) == 0) {
    wrong = LoadFile(site_file, "");
  }
  if (!wrong.empty()) *this = Settings();
  return wrong;
}

// Every variable with the agent's prefix has to be a setting. kForeignPrefix is
// left to tests.
std::string Settings::LoadEnvironment(const char* const* environment) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t end = std::min(entry.find('='), entry.size());
    const std::string_view variable = entry.substr(0, end);
    if (variable.substr(0, kSettingPrefix.size()) != kSettingPrefix) continue;
    if (variable.substr(0, kForeignPrefix.size()) == kForeignPrefix) continue;
    const std::string_view name = variable.substr(kSettingPrefix.size());
    const std::string_view value =
        entry.substr(std::min(end + 1, entry.size()));
    std::string wrong = CheckVariable(name, value);
    if (!wrong.empty()) return wrong;
    of_environment_.emplace_back(variable, value);
  }
  return "";
}

// `named_by` leads the message if the file cannot be read: the user has to know
// who named it.
std::string Settings::LoadFile(const std::string& path,
                               const std::string& named_by) {
  std::string text;
  std::string wrong = ReadSettingsFile(path, &text);
  if (!wrong.empty()) return named_by + path + ": " + wrong;
  std::vector<SettingsLine> lines;
  wrong = ParseSettings(text, &lines);
  if (!wrong.empty()) return path + ", " + wrong;
  for (const SettingsLine& line : lines) {
    wrong = CheckLine(line);
    if (!wrong.empty()) {
      return path + ", line " + std::to_string(line.number) + ": " + wrong;
    }
    const std::string variable = Variable(Upper(line.key));
    // The first one wins, and sources are read by rank: environment, the user's
    // file, the site's.
    if (Has(of_environment_, variable) || Has(of_file_, variable)) continue;
    of_file_.emplace_back(variable, line.value);
    file_of_row_.push_back(path);
  }
  files_.push_back(path);
  return "";
}

std::string Settings::FileOf(std::string_view variable) const {
  for (size_t row = 0; row < of_file_.size(); ++row) {
    if (of_file_[row].first == variable) return file_of_row_[row];
  }
  return "";
}

std::string Settings::Get(std::string_view variable) const {
  for (const auto* rows : {&of_environment_, &of_file_}) {
    for (const auto& [name, value] : *rows) {
      if (name == variable) return value;
    }
  }
  return "";
}

}  // namespace traincheck
