// Which attempt of its run a process belongs to.
//
// The ranks of a process group agree on a nonce of their start
// (PlaceRecord, Field::kStart): who has the same one belongs together, whenever
// and in whatever order its records come. A start that was not seen before is
// the next attempt that nobody is in, from the one on that its launcher named;
// an attempt never gets another number.
//
// Without a nonce (no group, an older agent) a rank whose place was held by a
// process that has ended goes to the next attempt in which its place is free.
// Processes without a group contest no place: a script may start several.
//
// Threads: functions over values; the registry synchronises.
#ifndef TRAINCHECK_SERVER_RUNS_ATTEMPTS_H_
#define TRAINCHECK_SERVER_RUNS_ATTEMPTS_H_

#include <cstdint>

#include "server/runs/run_state.h"

namespace traincheck::server {

// The attempt for a main process that has just bound its rank, or has learned
// from which start it is.
uint32_t FittingAttempt(const RunState& run, const stored::Process& process);

Starts NewestStarts(const RunState& run);

// Is a later start in the place of the process, or a later program in the
// process itself, so that a relay that is silent will not come back? Workers
// follow their owners. `newest`: what NewestStarts gives of the run.
bool IsSuperseded(const RunState& run, const Starts& newest,
                  const stored::Process& process);

// Is the process a child of the one that holds its rank? Then it inherited the
// rank's environment and is no rank.
bool IsChildOf(const stored::Process& process, const stored::Process& parent);

// Do both fields name the same place, of the same start?
bool SamePlace(const stored::Process& a, const stored::Process& b);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_ATTEMPTS_H_
