// One line on stderr: "traincheck: <message>". TRAINCHECK_LOG=off silences all,
// TRAINCHECK_LOG=error what LogOnce says.
// Threads: any; one write(2) a line.
#ifndef TRAINCHECK_AGENT_CAPTURE_LOG_H_
#define TRAINCHECK_AGENT_CAPTURE_LOG_H_

#include <string_view>

namespace traincheck::agent {

void LogLine(std::string_view message);

// A warning, only the first time for each key. Threads: GIL held.
void LogOnce(std::string_view key, std::string_view message);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_LOG_H_
