// One line on stderr: "traincheck: <message>". TRAINCHECK_LOG=off silences.
// Threads: any; one write(2) a line.
#ifndef TRAINCHECK_AGENT_CAPTURE_LOG_H_
#define TRAINCHECK_AGENT_CAPTURE_LOG_H_

#include <string_view>

namespace traincheck {

void LogLine(std::string_view message);

// Only the first time for each key. Threads: GIL held.
void LogOnce(std::string_view key, std::string_view message);

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_CAPTURE_LOG_H_
