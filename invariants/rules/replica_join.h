// Brings the members of replica groups together: windows of digests come in
// member by member, in each member's order, and leave judged, in the order of
// the unit, whatever the order in which members came. A window is judged when
// every member has closed it, passed it or ended; one in which two members
// differ is reported at once, since nothing later can undo it, unless an
// earlier window of the unit still waits.
//
// Holds what is not judged yet: its memory grows with the distance between
// the fastest and the slowest member. Of a member that has ended some bytes
// stay, and nothing of a unit whose members all have.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_REPLICA_JOIN_H_
#define TRAINCHECK_INVARIANTS_RULES_REPLICA_JOIN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "invariants/rules/rank_order.h"
#include "invariants/rules/text_table.h"
#include "invariants/trace/archive.h"

namespace traincheck {

// One value of one member. Variables and writers are numbers that the caller
// gives, the same for all members.
struct ReplicaValue {
  uint32_t variable = 0;
  uint32_t writer = 0;
  uint64_t digest = 0;

  void Fields(Archive& archive);
};

// What one member says of a window.
struct ReplicaWindow {
  std::optional<int64_t> step;       // nullopt: not known
  std::vector<ReplicaValue> values;  // sorted by variable
  // What people are shown of a value, by variable; none: a digest says nothing
  // to them. Goes with the window: there may be a new one in each.
  std::map<uint32_t, std::string> shown = {};
  std::string unknown;  // why something is missing; "": nothing is

  void Fields(Archive& archive);
};

using ReplicaMembers = absl::btree_map<int32_t, ReplicaWindow>;  // by rank

// Windows that belong together: one rule, one group, one object.
struct ReplicaUnit {
  uint32_t attempt = 0;
  size_t rule = 0;
  std::vector<int32_t> ranks;  // the members, sorted
  uint32_t ordinal = 0;

  bool operator<(const ReplicaUnit& other) const {
    if (attempt != other.attempt) return attempt < other.attempt;
    if (rule != other.rule) return rule < other.rule;
    if (SameRanks(ranks, other.ranks)) return ordinal < other.ordinal;
    return ranks < other.ranks;
  }

  void Fields(Archive& archive);
};

// A window judged. `members` are those that were in.
struct JudgedWindow {
  uint64_t index = 0;
  bool differs = false;
  bool early = false;  // members are missing and may still come
  bool again = false;  // was told early before
  // Values that differ from those of the window before.
  uint32_t varied = 0;
  std::string unknown;  // "" and not differs: all equal
  const ReplicaMembers* members = nullptr;
};

class ReplicaJoinListener {
 public:
  virtual ~ReplicaJoinListener() = default;
  virtual void OnJudged(const ReplicaUnit& unit,
                        const JudgedWindow& window) = 0;
  // All members of the unit have ended: nothing of it is kept or will come.
  virtual void OnOver(const ReplicaUnit& unit) {}
};

class ReplicaJoin {
 public:
  // Of two members' values.
  enum class Comparison { kEqual, kDiffers, kIncomplete };

  // `listener` must outlive this object.
  explicit ReplicaJoin(ReplicaJoinListener* listener) : listener_(listener) {}

  // The member's next window of the unit. REQUIRES: indices of one member
  // and unit grow.
  void Add(const ReplicaUnit& unit, int32_t rank, uint64_t index,
           ReplicaWindow window);
  // Nothing more will come of this rank; what comes all the same is not
  // looked at. The first reason counts.
  void EndRank(uint32_t attempt, int32_t rank, const std::string& reason);
  // Nothing more will come at all.
  void EndRun();

  bool HasEnded(uint32_t attempt, int32_t rank) const {
    return ended_.contains({attempt, rank});
  }
  // Is anything kept of units of this attempt?
  bool HasUnits(uint32_t attempt) const;

  void Fields(Archive& archive);

  // How many members were asked or compared so far: for the test that this
  // grows with the members, and not with their square.
  uint64_t looks() const { return looks_; }

 private:
  // What is not kept in snapshots is found again: with it the cost of a window
  // grows with its members and not with their square.
  struct Window {
    ReplicaMembers members;
    bool told = false;
    // Of all members that are in; none: to be found.
    std::optional<Comparison> comparison;

    void Fields(Archive& archive);
  };
  struct State {
    std::map<uint64_t, Window> open;
    absl::btree_map<int32_t, uint64_t> progress;  // next index of each member
    std::vector<ReplicaValue> last;               // of the window judged last
    bool has_last = false;
    // Of the ranks, those before it have closed the first open window.
    size_t closed = 0;
    // Of the ranks, those before it have ended.
    size_t ended = 0;

    void Fields(Archive& archive);
  };
  // Attempt and rank -> number of the reason.
  using Ended = absl::btree_map<std::pair<uint32_t, int32_t>, uint32_t>;

  void Insert(int32_t rank, ReplicaWindow window, Window* into);
  void Advance(const ReplicaUnit& unit, State* state);
  bool IsComplete(const ReplicaUnit& unit, State* state, uint64_t index);
  // Have all members ended?
  bool IsOver(const ReplicaUnit& unit, State* state);
  void Tell(const ReplicaUnit& unit, State* state, uint64_t index, bool early);
  std::string Missing(const ReplicaUnit& unit, const State& state,
                      uint64_t index) const;

  ReplicaJoinListener* const listener_;
  std::map<ReplicaUnit, State> units_;
  Ended ended_;
  TextTable reasons_;  // many ranks end in the same way
  bool run_ended_ = false;
  uint64_t looks_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_REPLICA_JOIN_H_
