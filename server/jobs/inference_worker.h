// The process of one inference job, from inside: reads stored batches from
// its socket, learns, answers with a set. It opens no database and no port,
// yields to everything else on the machine and ends when the daemon does.
//
// Threads: the process has one.
#ifndef TRAINCHECK_SERVER_JOBS_INFERENCE_WORKER_H_
#define TRAINCHECK_SERVER_JOBS_INFERENCE_WORKER_H_

#include <optional>

namespace traincheck::server {

// First argument of a traincheckd that is to be a worker; the memory limit in
// bytes and the daemon's pid follow. No option of the daemon looks like it.
inline constexpr char kWorkerArgument[] = "--inference-worker";

// Where the worker finds its socket.
inline constexpr int kWorkerSocket = 3;

// Exit codes of a worker.
inline constexpr int kWorkerDone = 0;
inline constexpr int kWorkerFailed = 1;  // it has said why
inline constexpr int kWorkerOutOfMemory = 70;
inline constexpr int kWorkerAlone = 71;  // the daemon is gone

// The code to exit with if the command line is a worker's, after its work is
// done; else nothing. REQUIRES: first in main.
std::optional<int> RunIfInferenceWorker(int argc, char** argv);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_INFERENCE_WORKER_H_
