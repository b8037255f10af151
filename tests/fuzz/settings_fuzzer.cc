// Settings of the agent from an environment, from the file that it names and
// from the site's: what is taken has a value that its setting may have, the
// nearer place wins, and of what is refused nothing is taken.
//
// Input: entries of the environment, u8 many; then u16 bytes of the first file
// and the rest, which is the site's. An entry names a setting of the table by
// u8 (beyond it: by its own bytes) and its value.
#include <string>
#include <vector>

#include "proto/settings/settings.h"
#include "proto/settings/settings_file.h"
#include "proto/settings/settings_table.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/memory_folder.h"

namespace traincheck {
namespace {

constexpr size_t kMaxEntries = 6;

std::string NameOf(FuzzInput* input) {
  const auto settings = AllSettings();
  const size_t number = input->Byte();
  if (number >= settings.size()) return input->Bytes(input->Byte() % 32);
  return std::string(kSettingPrefix) + std::string(settings[number].name);
}

std::vector<std::string> EnvironmentOf(FuzzInput* input,
                                       const std::string& file) {
  // The first of two entries holds.
  std::vector<std::string> entries = {"TRAINCHECK_CONFIG=" + file};
  for (size_t i = input->Byte() % kMaxEntries; i > 0; --i) {
    const std::string name = NameOf(input);
    std::string entry = name + "=" + input->Bytes(input->Byte() % 64);
    // An entry of an environment ends where a C string does.
    entries.push_back(entry.c_str());
  }
  return entries;
}

void CheckParsed(const std::string& text) {
  std::vector<SettingsLine> lines;
  const std::string wrong = ParseSettings(text, &lines);
  int before = 0;
  for (const SettingsLine& line : lines) {
    Require(line.number > before && !line.key.empty());
    before = line.number;
    for (const char c : line.value) Require(c >= ' ' && c <= '~');
  }
  // People are shown it.
  for (const char c : wrong) Require(c >= ' ' && c <= '~');
}

void CheckTaken(const Settings& settings, const std::string& file,
                const std::string& site) {
  for (const auto& [variable, value] : settings.of_file()) {
    const AgentSetting* const setting =
        FindSetting(variable.substr(kSettingPrefix.size()));
    Require(setting != nullptr && setting->in_file);
    Require(IsAllowed(*setting, value));
    Require(settings.Get(variable) == value);
    const std::string from = settings.FileOf(variable);
    Require(from == file || from == site);
  }
}

void Load(FuzzInput* input) {
  static const MemoryFolder folder;
  static MemoryFile file(folder, "config.yaml");
  static MemoryFile site(folder, "site.yaml");
  const std::vector<std::string> entries = EnvironmentOf(input, file.path());
  std::vector<const char*> environment;
  for (const std::string& entry : entries) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  const std::string text = input->Bytes(input->Number<uint16_t>());
  CheckParsed(text);
  file.Put(text);
  site.Put(input->Rest());
  Settings settings;
  const std::string wrong = settings.Load(environment.data(), site.path());
  if (wrong.empty()) return CheckTaken(settings, file.path(), site.path());
  Require(settings.of_file().empty() && settings.files().empty());
  for (const AgentSetting& setting : AllSettings()) {
    Require(
        settings.Get(std::string(kSettingPrefix) + std::string(setting.name))
            .empty());
  }
}

}  // namespace
}  // namespace traincheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::FuzzInput input(data, size);
  traincheck::Load(&input);
  return 0;
}
