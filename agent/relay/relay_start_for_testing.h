// Starts a relay as the agent does: its listening socket as descriptor 3,
// nothing on stdin and stdout, in a session of its own.
//
// Threads: the caller has only one.
#ifndef TRAINCHECK_AGENT_RELAY_RELAY_START_FOR_TESTING_H_
#define TRAINCHECK_AGENT_RELAY_RELAY_START_FOR_TESTING_H_

#include <sys/types.h>

#include <string>

namespace traincheck::agent {

// The relay gets this process's environment, with TRAINCHECK_RELAY_START set
// to `start`, and its stderr; it is a child of this process. `socket_name`:
// the abstract socket on which it listens when this returns. -1: it failed.
pid_t StartRelayAsAgent(const std::string& program,
                        const std::string& socket_name, int start);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_RELAY_START_FOR_TESTING_H_
