#include "server/checking/rank_pace.h"

#include <algorithm>

namespace traincheck::server {

// REQUIRES: the process has a place (HasPlace).
void RankPace::Add(const RunView::Process& process, uint64_t step, bool live) {
  const Place place = {process.attempt, *process.rank};
  // Views list processes by number, so holders ascend, as HoldersOf promises.
  holders_[place].push_back(process.number);
  newest_attempt_ = std::max(newest_attempt_, process.attempt);
  if (!live) return;
  const auto [at, is_new] = live_steps_.try_emplace(place, step);
  // A place that was taken over has several holders.
  if (!is_new) at->second = std::min(at->second, step);
}

const std::vector<uint32_t>& RankPace::HoldersOf(const Place& place) const {
  static const auto* const kNone = new std::vector<uint32_t>;
  const auto at = holders_.find(place);
  return at == holders_.end() ? *kNone : at->second;
}

// One pass over the ranks of a group, kept: each member asks for the slowest of
// the others, and the two slowest places answer all of them.
const RankPace::Slowest& RankPace::SlowestOf(const Group& group) {
  const auto [at, is_new] = slowest_.try_emplace(group);
  Slowest& slowest = at->second;
  if (!is_new) return slowest;
  for (const int32_t rank : *group.second) {
    ++looks_;
    const Place place = {group.first, rank};
    const auto step = live_steps_.find(place);
    if (step == live_steps_.end()) continue;
    if (step->second < slowest.step) {
      slowest.next_step = slowest.step;
      slowest.step = step->second;
      slowest.place = place;
    } else {
      slowest.next_step = std::min(slowest.next_step, step->second);
    }
  }
  return slowest;
}

uint64_t RankPace::SlowestOfOthers(const Place& place,
                                   const SharedRanks& ranks) {
  ++looks_;
  const Slowest& slowest = SlowestOf({place.first, ranks});
  // A rank never waits for itself: for the slowest one the next slowest counts.
  const bool is_own = slowest.step != UINT64_MAX && slowest.place == place;
  return is_own ? slowest.next_step : slowest.step;
}

}  // namespace traincheck::server
