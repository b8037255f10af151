// Starts traincheck-relay so that nothing in the user's program can notice:
// no SIGCHLD, no child that wait() finds, no controlling terminal, no inherited
// descriptor but the listening socket (as fd 3) and stderr. No page tables are
// copied (vfork), so that it takes the same time whatever the process weighs.
#ifndef TRAINCHECK_AGENT_CAPTURE_RELAY_PROCESS_H_
#define TRAINCHECK_AGENT_CAPTURE_RELAY_PROCESS_H_

#include <string>

namespace traincheck::agent {

// The environment of this process goes along without LD_PRELOAD and with
// TRAINCHECK_OWNER_PID; TRAINCHECK_RELAY_START is `number` from 2 on: a relay
// that takes over what others had. Returns 0 once the program runs, else an
// errno. Threads: any; the calling thread waits for the exec, some
// milliseconds.
[[nodiscard]] int StartRelay(const std::string& program, int listening_socket,
                             int number);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_RELAY_PROCESS_H_
