// How far the ranks of a run may be read ahead of each other, and who comes
// after whom. Made from one look at all processes: what it answers costs no
// second one, so that a check's work grows linearly with the ranks.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_CHECKING_RANK_PACE_H_
#define TRAINCHECK_SERVER_CHECKING_RANK_PACE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "checker/group_ranks.h"
#include "server/runs/registry.h"

namespace traincheck::server {

// In a world that others may have to wait for.
using Place = std::pair<uint32_t, int32_t>;  // attempt, rank

class RankPace {
 public:
  // A process that holds a place. `step`: the number of its open step.
  // `live`: it may come further.
  void Add(const RunView::Process& process, uint64_t step, bool live);

  // The least step of live processes in other places of these ranks in the
  // attempt of `place`; UINT64_MAX: there is none.
  uint64_t SlowestOfOthers(const Place& place, const SharedRanks& ranks);

  // Numbers of the processes that hold the place, ascending.
  const std::vector<uint32_t>& HoldersOf(const Place& place) const;
  bool IsHeld(const Place& place) const { return holders_.contains(place); }
  uint32_t newest_attempt() const { return newest_attempt_; }

  // Looks at single places so far, for tests.
  uint64_t looks() const { return looks_; }

 private:
  // The two slowest places of a group: one of them is another than any.
  struct Slowest {
    Place place;
    uint64_t step = UINT64_MAX;
    uint64_t next_step = UINT64_MAX;  // of the slowest other place
  };
  using Group = std::pair<uint32_t, SharedRanks>;  // attempt

  const Slowest& SlowestOf(const Group& group);

  std::map<Place, std::vector<uint32_t>> holders_;
  std::map<Place, uint64_t> live_steps_;
  std::map<Group, Slowest> slowest_;  // as far as somebody has asked
  uint32_t newest_attempt_ = 0;
  uint64_t looks_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_RANK_PACE_H_
