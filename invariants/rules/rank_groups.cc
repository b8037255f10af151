#include "invariants/rules/rank_groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/json_reader.h"
#include "invariants/rules/rank_comparison.h"

namespace traincheck {

namespace {

constexpr char kAll[] = "all";

// nullopt: they are not equally far apart.
std::optional<GroupKind> KindOf(const std::vector<int32_t>& ranks,
                                const std::string& mesh, int32_t world) {
  // The group of all ranks is one kind, also if it is a dimension of a mesh.
  if (ranks.size() == static_cast<size_t>(world)) return GroupKind();
  if (!mesh.empty()) return GroupKind{.mesh = mesh};
  // Wider: ranks may be any numbers.
  const int64_t apart = int64_t{ranks[1]} - ranks[0];
  for (size_t i = 1; i < ranks.size(); ++i) {
    // Groups that are not regular have no words that are the same in another
    // run.
    if (int64_t{ranks[i]} - ranks[i - 1] != apart) return std::nullopt;
  }
  return GroupKind{.ranks = ranks.size(),
                   .apart = static_cast<uint64_t>(apart)};
}

}  // namespace

absl::StatusOr<GroupKind> GroupKind::Parse(const nlohmann::json& json,
                                           const std::string& path) {
  JsonReader reader(json, path);
  GroupKind kind;
  if (reader.Has("mesh")) {
    kind.mesh = reader.String("mesh");
    if (kind.mesh.empty()) reader.Fail("mesh", "empty");
  } else if (reader.Any("ranks") != kAll) {
    kind.ranks = reader.Unsigned("ranks");
    kind.apart = reader.Unsigned("apart");
    if (kind.ranks < 2) reader.Fail("ranks", "neither \"all\" nor 2 or more");
    if (kind.apart < 1) reader.Fail("apart", "not 1 or more");
  }
  return reader.Finish(kind);
}

nlohmann::json GroupKind::ToJson() const {
  if (!mesh.empty()) return {{"mesh", mesh}};
  if (ranks == 0) return {{"ranks", kAll}};
  return {{"ranks", ranks}, {"apart", apart}};
}

std::string GroupKind::Describe() const {
  if (!mesh.empty()) return "the ranks along the dimension " + mesh;
  if (ranks == 0) return "all ranks";
  return "the " + std::to_string(ranks) + " ranks of a group, " +
         std::to_string(apart) + " apart";
}

std::vector<RankGroup> GroupsOf(const ProcessFacts& facts) {
  // Without its place nothing says which of the groups the process is in.
  if (!facts.rank() || facts.world() < 2) return {};
  std::map<GroupKind, std::vector<int32_t>> groups;
  for (const auto& [id, info] : facts.definitions().process_groups()) {
    std::vector<int32_t> ranks = info.ranks;
    std::sort(ranks.begin(), ranks.end());
    // One that names a rank twice is damaged.
    if (ranks.size() < 2 ||
        std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end() ||
        !std::binary_search(ranks.begin(), ranks.end(), *facts.rank())) {
      continue;
    }
    const auto kind = KindOf(ranks, info.mesh_name, facts.world());
    // The one that was defined first counts among several of one kind.
    if (kind) groups.emplace(*kind, std::move(ranks));
  }
  std::vector<RankGroup> result;
  // The one with a name counts among several of equal ranks: it sorts last.
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const bool again = std::any_of(
        result.begin(), result.end(),
        [&](const RankGroup& one) { return one.ranks == group->second; });
    if (!again) result.push_back({group->first, std::move(group->second)});
  }
  return result;
}

const SortedGroups::Group* SortedGroups::Of(const ProcessFacts& facts,
                                            uint32_t group) {
  if (!known_) {
    groups_.clear();
    // torch asks all ranks to make their groups in one order, so that the place
    // is the same on each of them.
    std::map<std::vector<int32_t>, uint32_t> made;
    for (const auto& [id, info] : facts.definitions().process_groups()) {
      std::vector<int32_t> ranks = info.ranks;
      std::sort(ranks.begin(), ranks.end());
      ++sorts_;
      const uint32_t ordinal = made[ranks]++;
      groups_[id] = {
          std::make_shared<const std::vector<int32_t>>(std::move(ranks)),
          ordinal};
    }
    known_ = true;
  }
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second;
}

bool AreReplicas(const ProcessFacts& facts, uint32_t variable,
                 const std::vector<int32_t>& ranks) {
  const ReplicaGroupInfo* said = ComparableGroup(facts, variable);
  // A group within the ranks of the replicas holds replicas, too.
  return said && std::includes(said->ranks.begin(), said->ranks.end(),
                               ranks.begin(), ranks.end());
}

}  // namespace traincheck
