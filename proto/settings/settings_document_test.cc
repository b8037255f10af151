// The table in docs/configuration.md is the one in settings_table.cc.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "proto/settings/settings_table.h"

namespace traincheck {
namespace {

constexpr char kDocument[] = "docs/configuration.md";
constexpr char kHead[] =
    "| variable | key in the file | value | default | meaning |\n"
    "|---|---|---|---|---|\n";

std::string Key(const AgentSetting& setting) {
  if (!setting.in_file) return "-";
  std::string key = "`";
  for (const char c : setting.name) {
    key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return key + "`";
}

std::string Table() {
  std::string table = kHead;
  for (const AgentSetting& setting : AllSettings()) {
    table += "| `" + std::string(kSettingPrefix) + std::string(setting.name) +
             "` | " + Key(setting) + " | " + AllowedValues(setting) + " | " +
             std::string(setting.fallback) + " | " + std::string(setting.text) +
             " |\n";
  }
  return table;
}

TEST(ConfigurationDocument, HasTheTable) {
  std::ifstream file(kDocument);
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_NE(document.str().find("\n" + Table() + "\n"), std::string::npos)
      << kDocument << " has to have:\n\n"
      << Table();
}

}  // namespace
}  // namespace traincheck
