// The sign that a rank puts up for the processes below it: a mapping whose name
// stands in /proc/PID/maps, "traincheck-rank:RANK/WORLD:RUN". A process that a
// rank starts inherits RANK and WORLD_SIZE, and cannot know by its environment
// that they are not its own; nor can a DataLoader worker that was spawned know
// the name that the ranks agreed on. Neither files nor variables are touched.
//
// Where /proc may not be read, no sign is seen and the environment is believed;
// the daemon then refuses the second owner of a rank.
//
// Threads: RankAbove is pure; PutUpRankSign needs the GIL.
#ifndef TRAINCHECK_AGENT_CAPTURE_RANK_SIGN_H_
#define TRAINCHECK_AGENT_CAPTURE_RANK_SIGN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "agent/capture/system.h"

namespace traincheck::agent {

struct RankSign {
  uint32_t pid = 0;   // whose sign it is
  std::string place;  // "RANK/WORLD"
  std::string run;
};

// In place of the sign that this process put up before. Where there is no
// shared memory there is no sign.
void PutUpRankSign(const std::string& place, const std::string& run);

// The rank that this process descends from, if it was spawned by
// multiprocessing or has that rank's RANK and WORLD_SIZE.
std::optional<RankSign> RankAbove(const System& system);

// Does this process have the RANK and WORLD_SIZE of a rank above it?
bool InheritsRank(const System& system);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_RANK_SIGN_H_
