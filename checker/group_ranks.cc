#include "checker/group_ranks.h"

#include <algorithm>
#include <utility>

namespace traincheck {

const SharedRanks& GroupRanks::None() {
  static const auto* const kNone =
      new SharedRanks(std::make_shared<std::vector<int32_t>>());
  return *kNone;
}

// Asked for each process in each turn of a check, so the list is made anew only
// when the process has defined another group.
SharedRanks GroupRanks::Of(uint32_t process,
                           const ProcessDefinitions& definitions) {
  Known& known = known_[process];
  if (known.ranks != nullptr &&
      known.revision == definitions.groups_revision()) {
    return known.ranks;
  }
  std::vector<int32_t> ranks;
  for (const auto& [id, group] : definitions.groups()) {
    ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  known = {definitions.groups_revision(), Shared(std::move(ranks))};
  return known.ranks;
}

void GroupRanks::LetGo(uint32_t process,
                       const ProcessDefinitions& definitions) {
  // By Of, since nobody may have asked while the process ran.
  last_[process] = Of(process, definitions);
  known_.erase(process);
}

// Ranks that never came are looked for in the groups of ended processes, too.
SharedRanks GroupRanks::LastOf(uint32_t process) const {
  const auto found = last_.find(process);
  return found == last_.end() ? None() : found->second;
}

void GroupRanks::Fields(Archive& archive) {
  // Each list once, however many processes have it.
  std::vector<std::vector<int32_t>> lists;
  std::map<uint32_t, uint32_t> places;  // process -> place of its list
  std::map<SharedRanks, uint32_t> known;
  for (const auto& [process, ranks] : last_) {
    const auto [list, is_new] =
        known.try_emplace(ranks, static_cast<uint32_t>(lists.size()));
    if (is_new) lists.push_back(*ranks);
    places[process] = list->second;
  }
  archive(lists, places);
  if (!archive.reading()) return;
  std::vector<SharedRanks> shared;
  for (const std::vector<int32_t>& list : lists) shared.push_back(Shared(list));
  // Bytes of a damaged or foreign state may name lists that are not there.
  for (const auto& [process, place] : places) {
    if (place >= shared.size()) return archive.Fail("no such group");
    last_[process] = shared[place];
  }
}

// One list for equal contents: callers key tables by the pointer (RankPace),
// which makes a look at a thousand ranks one look.
SharedRanks GroupRanks::Shared(std::vector<int32_t> ranks) {
  if (ranks.empty()) return None();
  auto& list = lists_[ranks];
  SharedRanks shared = list.lock();
  if (shared == nullptr) {
    // Lists that nobody has any more go whenever a new one comes, so that they
    // do not pile up while groups change. Its own entry, empty until below, is
    // kept.
    std::erase_if(lists_, [&](const auto& entry) {
      return entry.second.expired() && entry.first != ranks;
    });
    shared = std::make_shared<const std::vector<int32_t>>(std::move(ranks));
    list = shared;
  }
  return shared;
}

}  // namespace traincheck
