// The groups of ranks that a process belongs to: its process groups, each set
// of ranks once, and words for them that are the same on every rank and in
// every run of a program.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_RANK_GROUPS_H_
#define TRAINCHECK_INVARIANTS_RULES_RANK_GROUPS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/facts/process_facts.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// A kind of groups, of which a rank is in one at most. One of:
//   {"ranks": "all"}                 the group of all ranks of a run
//   {"mesh": "tp"}                   a named dimension of a DeviceMesh
//   {"ranks": 2, "apart": 4}         {0, 4}, {1, 5}, ...
struct GroupKind {
  std::string mesh = {};  // "": not named
  uint64_t ranks = 0;     // 0: all
  uint64_t apart = 0;

  [[nodiscard]] static absl::StatusOr<GroupKind> Parse(
      const nlohmann::json& json, const std::string& path);
  nlohmann::json ToJson() const;
  // "the ranks of a group of 2, 4 apart".
  std::string Describe() const;
  auto operator<=>(const GroupKind&) const = default;
};

struct RankGroup {
  GroupKind kind;
  std::vector<int32_t> ranks;  // sorted, two at least
};

// Those that this process is in and whose ranks are all, of a named dimension,
// or equally far apart; one of each kind. Empty where it has no rank.
std::vector<RankGroup> GroupsOf(const ProcessFacts& facts);

// The same, found anew only where a definition says so: asked for at each step,
// and a group may be of a thousand ranks. Not part of what is saved.
//
// Threads: one object, one thread at a time.
class KnownGroups {
 public:
  void OnDefinition(RecordType type) {
    known_ &= type != RecordType::kProcessGroupDef;
  }
  const std::vector<RankGroup>& Of(const ProcessFacts& facts) {
    if (!known_) groups_ = GroupsOf(facts);
    known_ = facts.rank().has_value();
    return groups_;
  }

 private:
  bool known_ = false;
  std::vector<RankGroup> groups_;
};

// The process groups of one process, as ranks agree on them. All are found at
// once, and anew only where a definition says so: asked for at each collective,
// and a group may be of a thousand ranks. Not part of what is saved.
//
// Threads: one object, one thread at a time.
class SortedGroups {
 public:
  struct Group {
    std::shared_ptr<const std::vector<int32_t>> ranks;  // sorted
    // Its place among the groups that have the same members, in the order in
    // which the process has made them.
    uint32_t ordinal = 0;
  };

  void OnDefinition(RecordType type) {
    known_ &= type != RecordType::kProcessGroupDef;
  }
  // Null: it has no definition.
  const Group* Of(const ProcessFacts& facts, uint32_t group);
  // Lists that were sorted so far: for the test that these are few.
  uint64_t sorts() const { return sorts_; }

 private:
  bool known_ = false;
  std::map<uint32_t, Group> groups_;
  uint64_t sorts_ = 0;
};

// Does a wrapper say that these ranks hold replicas of the variable?
bool AreReplicas(const ProcessFacts& facts, uint32_t variable,
                 const std::vector<int32_t>& ranks);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RANK_GROUPS_H_
