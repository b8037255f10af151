// Compares values of several ranks, window by window (replica_join.h), and says
// what differs in words: which values, which ranks stand out, who wrote them.
// Rules on replicas, on collectives and on what calls are given or return on
// all ranks are built on it.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_RANK_COMPARISON_H_
#define TRAINCHECK_INVARIANTS_RULES_RANK_COMPARISON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariants/facts/variable_state.h"
#include "invariants/rules/joined_ranks.h"
#include "invariants/rules/relation.h"
#include "invariants/rules/text_table.h"

namespace traincheck {

// One value of one rank in one window.
struct RankValue {
  std::string name;  // equal on all ranks
  uint64_t digest = 0;
  // What people are shown of the value; "": a digest says nothing to them.
  std::string shown = {};
  Writer writer = {};  // what made it so
};

// The values of one rank.
struct RankWindow {
  std::vector<int32_t> ranks;   // that are compared, sorted
  uint32_t ordinal = 0;         // tells apart what the ranks share otherwise
  uint64_t index = 0;           // of the window; grows
  std::optional<int64_t> step;  // nullopt: not known
  std::vector<RankValue> values;
  std::string unknown;  // why something is missing; "": nothing is
};

class RankComparison : public JoinedRanks {
 public:
  // What the ordinals of windows count.
  enum class Ordinals { kOther, kOptimizers, kProcessGroups };

  struct Words {
    std::string what;        // "gradients of parameters before a step"
    bool variables = false;  // are the names those of variables?
    // Could each window have refuted it, also one that is like the one before?
    bool each_window_counts = false;
    Ordinals ordinals = Ordinals::kOther;
  };

  explicit RankComparison(RuleSink* sink) : sink_(sink) {}

  // What the rule with this index compares. REQUIRES: before its first window.
  void SetWords(size_t rule, Words words) { words_[rule] = std::move(words); }

  // The same window for each of the rules. REQUIRES: the process has a rank;
  // indices of one rank, rule and unit grow.
  void Add(const ProcessFacts& facts, const std::vector<size_t>& rules,
           const RankWindow& window);
  void Add(const ProcessFacts& facts, size_t rule, const RankWindow& window) {
    Add(facts, std::vector<size_t>{rule}, window);
  }

  void Fields(Archive& archive);

 private:
  ReplicaWindow Numbered(const ProcessFacts& facts, const RankWindow& window);
  void OnJudged(const ReplicaUnit& unit, const JudgedWindow& window) override;
  Finding Describe(const ReplicaUnit& unit, const JudgedWindow& window,
                   const Words& words) const;
  // "rank 0: all_reduce, rank 1: all_gather"; "" for digests.
  std::string ShownWords(uint32_t variable, const JudgedWindow& window) const;

  RuleSink* const sink_;
  std::map<size_t, Words> words_;  // by rule
  TextTable names_;
  TextTable writers_;
};

// Ranks of a replica group with this variable, on evidence; null: there is
// none.
const ReplicaGroupInfo* ComparableGroup(const ProcessFacts& facts,
                                        uint32_t variable);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RANK_COMPARISON_H_
