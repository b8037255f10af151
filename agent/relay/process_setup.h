// Frees the relay from what it inherited from the training process.
//
// Threads: to be called before the first other thread exists.
#ifndef TRAINCHECK_AGENT_RELAY_PROCESS_SETUP_H_
#define TRAINCHECK_AGENT_RELAY_PROCESS_SETUP_H_

#include "agent/relay/unique_fd.h"

namespace traincheck::agent {

// Opens /dev/null in the place of each of stdin, stdout and stderr that is
// closed, so that no socket takes its number and gets what is meant for it.
void OpenStandardFiles();

// Closes every descriptor from `first` on.
void CloseFrom(int first);

// Runs on all processors that the machine or container allows.
void ResetAffinity();

// Ignores SIGINT, SIGHUP and SIGPIPE, and gives every other signal its
// default. SIGTERM is blocked and makes the result readable.
UniqueFd SetUpSignals();

// gRPC reads its settings from the environment.
void SetUpGrpcEnvironment();

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_PROCESS_SETUP_H_
