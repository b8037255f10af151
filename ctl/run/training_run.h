// `traincheckctl run`: starts a training under the agent and tells on stderr
// what the server finds. The training always starts, unless the user's words
// are wrong or --require-server asks for a server.
#ifndef TRAINCHECK_CTL_RUN_TRAINING_RUN_H_
#define TRAINCHECK_CTL_RUN_TRAINING_RUN_H_

#include "ctl/run/monitored_training.h"

namespace traincheck::ctl {

// Returns the exit code of this program. REQUIRES: called from the main
// thread while there is no other.
int RunTraining(const TrainingRunOptions& options);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_TRAINING_RUN_H_
