// Which attempt of its run a process belongs to, beyond what its launcher says.
//
// A launcher that counts restarts (torchelastic) names the attempt in Hello. A
// script that is started again under the same run id names none: its ranks
// would meet those of the first start. So a rank whose place was held by a
// process that has ended goes to the next attempt where its place is free.
//
// Threads: functions over values; the registry synchronises.
#ifndef TRAINCHECK_SERVER_RUNS_ATTEMPTS_H_
#define TRAINCHECK_SERVER_RUNS_ATTEMPTS_H_

#include <cstdint>

#include "server/runs/run_state.h"

namespace traincheck {

// The attempt for a main process that has just bound its rank: its own, or the
// next in which it is not late.
uint32_t FittingAttempt(const RunState& run, const stored::Process& process);

// Is the process a child of the one that holds its rank? Then it inherited the
// rank's environment and is no rank.
bool IsChildOf(const stored::Process& process, const stored::Process& parent);

// Do both fields name the same place?
bool SamePlace(const stored::Process& a, const stored::Process& b);

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_RUNS_ATTEMPTS_H_
