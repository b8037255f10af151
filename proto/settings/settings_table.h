// What the agent can be told: the one table of its settings. A setting is a
// variable TRAINCHECK_<NAME> of the environment and, where in_file says so, a
// key <name> of the file that TRAINCHECK_CONFIG names (settings_file.h).
// docs/configuration.md shows this table; a test keeps the two equal.
//
// Part of the training process: the C++ standard library only.
// Threads: pure functions.
#ifndef TRAINCHECK_PROTO_SETTINGS_SETTINGS_TABLE_H_
#define TRAINCHECK_PROTO_SETTINGS_SETTINGS_TABLE_H_

#include <span>
#include <string>
#include <string_view>

namespace traincheck {

enum class SettingKind {
  kText,
  kFlag,          // 0 or 1
  kChoice,        // one of the words in `choices`
  kSeconds,       // a decimal number, "0.5"
  kWholeSeconds,  // at most 9 digits
  kSteps,         // as many, and not 0
  kPercent,       // a decimal number up to 100, or off
  kBytes,         // a whole number, also with K, M or G behind it
  kAddress,       // HOST:PORT or unix:PATH
  kRun,           // what a daemon takes as the id of a run
};

struct AgentSetting {
  std::string_view name;  // without prefix: "SPOOL_LIMIT"
  SettingKind kind;
  std::string_view choices;   // of kChoice: words, a space between two
  std::string_view fallback;  // what holds without it, in words
  std::string_view text;      // what it does, for people
  bool in_file;
};

inline constexpr std::string_view kSettingPrefix = "TRAINCHECK_";
// Variables that begin so are left to the tests of a training.
inline constexpr std::string_view kForeignPrefix = "TRAINCHECK_TEST_";

std::span<const AgentSetting> AllSettings();

// nullptr: there is none of this name (without prefix, upper case).
const AgentSetting* FindSetting(std::string_view name);

// The name in the table that takes the fewest changes of a letter.
std::string_view NearestSetting(std::string_view name);

// "0 or 1", "a whole number of seconds": what a value may be.
std::string AllowedValues(const AgentSetting& setting);

// May the setting have this value? "" is no value: what holds without it.
bool IsAllowed(const AgentSetting& setting, std::string_view value);

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_SETTINGS_SETTINGS_TABLE_H_
