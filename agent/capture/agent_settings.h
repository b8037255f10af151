// The settings of this process; see proto/settings. Read before the agent
// starts, once for a process and its forked children.
//
// Threads: LoadSettings with the GIL held, before all others; these: any.
#ifndef TRAINCHECK_AGENT_CAPTURE_AGENT_SETTINGS_H_
#define TRAINCHECK_AGENT_CAPTURE_AGENT_SETTINGS_H_

#include <string>
#include <utility>
#include <vector>

namespace traincheck::agent {

// Reads and checks environment and file. "": done; else what is wrong: the
// agent has to stay off.
[[nodiscard]] std::string LoadSettings();

// Value of "TRAINCHECK_GRACE": the environment's as it is now, if it is there,
// else the file's. "": what holds without it.
std::string SettingOf(const char* variable);

// What the file adds to the environment that LoadSettings saw.
const std::vector<std::pair<std::string, std::string>>& SettingsOfFile();

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_AGENT_SETTINGS_H_
