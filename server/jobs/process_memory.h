// Memory of processes and of the machine.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_JOBS_PROCESS_MEMORY_H_
#define TRAINCHECK_SERVER_JOBS_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstdint>

namespace traincheck::server {

// Largest resident memory of a process that has not ended; 0: not known.
uint64_t PeakBytes(pid_t pid);

// Memory of the machine, or of the container if that has less.
uint64_t MachineBytes();

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_PROCESS_MEMORY_H_
