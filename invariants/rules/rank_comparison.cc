#include "invariants/rules/rank_comparison.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "invariants/rules/subjects.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// The members that hold another value than most. Without a majority, as always
// with two members, nothing says who is wrong: then they are all members.
using OddRanks = std::set<int32_t>;

OddRanks FindOdd(const std::map<uint64_t, std::vector<int32_t>>& by_digest) {
  const auto most = std::max_element(by_digest.begin(), by_digest.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.second.size() < b.second.size();
                                     });
  // Several ranks have it, and no other value has as many.
  const bool majority = most->second.size() > 1 && [&] {
    for (auto it = by_digest.begin(); it != by_digest.end(); ++it) {
      if (it != most && it->second.size() == most->second.size()) return false;
    }
    return true;
  }();
  OddRanks odd;
  for (const auto& [digest, ranks] : by_digest) {
    if (majority && ranks == most->second) continue;
    odd.insert(ranks.begin(), ranks.end());
  }
  return odd;
}

// By number of the name.
struct Disagreement {
  OddRanks odd;
  std::set<int32_t> ranks;  // that have a value
  uint32_t writer = 0;      // of the first member
};

// By name and digest, the ranks that have it: the cost grows with the values,
// and not with the pairs of ranks. `compared`: values that some member has.
std::map<uint32_t, Disagreement> FindDisagreements(
    const ReplicaMembers& members, size_t* compared) {
  std::map<uint32_t, std::map<uint64_t, std::vector<int32_t>>> table;
  std::map<uint32_t, uint32_t> writers;
  for (const auto& [rank, window] : members) {
    for (const ReplicaValue& value : window.values) {
      table[value.variable][value.digest].push_back(rank);
      // The first member's: all ranks run one program, so one line is shown for
      // all.
      writers.emplace(value.variable, value.writer);
    }
  }
  *compared = table.size();
  std::map<uint32_t, Disagreement> result;
  for (const auto& [variable, by_digest] : table) {
    // Only values that differ among the ranks that have one: a value that a
    // rank did not record is not a disagreement.
    if (by_digest.size() < 2) continue;
    Disagreement& one = result[variable];
    one = {FindOdd(by_digest), {}, writers[variable]};
    for (const auto& [digest, ranks] : by_digest) {
      one.ranks.insert(ranks.begin(), ranks.end());
    }
  }
  return result;
}

}  // namespace

ReplicaWindow RankComparison::Numbered(const ProcessFacts& facts,
                                       const RankWindow& window) {
  ReplicaWindow joined;
  joined.step = window.step;
  joined.unknown = window.unknown;
  joined.values.reserve(window.values.size());
  WriterNumbers writers(facts, &writers_);
  for (const RankValue& value : window.values) {
    const uint32_t name = names_.Number(value.name);
    joined.values.push_back({name, writers.Of(value.writer), value.digest});
    if (!value.shown.empty()) joined.shown[name] = value.shown;
  }
  // Two members are compared in one pass over both lists (replica_join.cc).
  std::sort(joined.values.begin(), joined.values.end(),
            [](const ReplicaValue& a, const ReplicaValue& b) {
              return a.variable < b.variable;
            });
  return joined;
}

void RankComparison::Add(const ProcessFacts& facts,
                         const std::vector<size_t>& rules,
                         const RankWindow& window) {
  // Numbered once for all rules on the same state: with many rules the texts
  // would be most of the work.
  const ReplicaWindow joined = Numbered(facts, window);
  ReplicaUnit unit{facts.attempt(), 0, window.ranks, window.ordinal};
  for (const size_t rule : rules) {
    unit.rule = rule;
    join_.Add(unit, *facts.rank(), window.index, joined);
  }
}

namespace {

// "rank 2 differs from ranks 0, 1"; without a majority: "between ranks 0, 1".
// `ranks`: those that have a value, since the others neither differ nor agree.
std::string WhoDiffers(const std::set<int32_t>& ranks, const OddRanks& odd) {
  // With hundreds of ranks a list of those that agree would hide the few that
  // do not.
  constexpr size_t kMostNamed = 8;
  if (ranks.size() <= 2 || odd.size() >= ranks.size()) {
    return "between " + RankWords({ranks.begin(), ranks.end()});
  }
  std::vector<int32_t> agree;
  std::set_difference(ranks.begin(), ranks.end(), odd.begin(), odd.end(),
                      std::back_inserter(agree));
  const std::string others =
      agree.size() > kMostNamed ? "the others" : RankWords(agree);
  return RankWords({odd.begin(), odd.end()}) +
         (odd.size() == 1 ? " differs from " : " differ from ") + others;
}

}  // namespace

std::string RankComparison::ShownWords(uint32_t variable,
                                       const JudgedWindow& window) const {
  std::string text;
  for (const auto& [rank, member] : *window.members) {
    const auto shown = member.shown.find(variable);
    if (shown == member.shown.end()) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + ": " +
            shown->second;
  }
  return text;
}

Finding RankComparison::Describe(const ReplicaUnit& unit,
                                 const JudgedWindow& window,
                                 const Words& words) const {
  Finding finding;
  OddRanks odd;
  std::set<int32_t> ranks;
  size_t compared = 0;
  // By name: numbers depend on the order in which records came, and the words
  // of a finding must not.
  std::set<std::string> names;
  std::map<std::string, WriterParts> writer_of;  // by name
  std::string shown;
  for (const auto& [variable, one] :
       FindDisagreements(*window.members, &compared)) {
    const std::string name = names_.Text(variable);
    odd.insert(one.odd.begin(), one.odd.end());
    ranks.insert(one.ranks.begin(), one.ranks.end());
    names.insert(name);
    writer_of[name] = PartsOf(writers_.Text(one.writer));
    const std::string values = ShownWords(variable, window);
    if (!values.empty()) {
      shown += (shown.empty() ? "" : "; ") + name + ": " + values;
    }
  }
  // In the order of the names, so that the first site of a finding is the same
  // whenever it is made.
  for (const auto& [name, writer] : writer_of) {
    AddWriter(writer, &finding);
  }
  const std::vector<std::string> differ(names.begin(), names.end());
  if (words.variables) finding.variables = differ;
  if (words.ordinals == Ordinals::kOptimizers) {
    finding.subjects = {OptimizerSubject(unit.ordinal)};
  } else if (words.ordinals == Ordinals::kProcessGroups) {
    finding.subjects = {GroupSubject(unit.ranks, unit.ordinal)};
  }
  finding.expected = "equal " + words.what + " on " + RankWords(unit.ranks);
  // Values that people can read say more than a count of names.
  finding.seen = shown;
  if (shown.empty()) {
    finding.seen = std::to_string(names.size()) + " of " +
                   std::to_string(compared) +
                   " differ: " + ListWords(differ, 3);
  }
  finding.seen += "; " + WhoDiffers(ranks, odd);
  return finding;
}

void RankComparison::OnJudged(const ReplicaUnit& unit,
                              const JudgedWindow& window) {
  const auto words = words_.find(unit.rule);
  // A unit of a damaged state may name a rule that is not there.
  if (words == words_.end()) return;
  Verdict verdict = NewVerdict(unit, window);
  const bool each = words->second.each_window_counts;
  verdict.varied = each || window.varied > 0;
  // Values that are as before would be equal in any case, and show nothing of
  // the rule.
  verdict.trials = each ? 1 : window.varied;
  if (!window.differs) {
    verdict.outcome =
        window.unknown.empty() ? Outcome::kPass : Outcome::kUnknown;
    verdict.reason = window.unknown;
    sink_->OnVerdict(verdict);
    return;
  }
  MarkViolated(unit, window, &verdict);
  verdict.again = window.again;
  verdict.finding = Describe(unit, window, words->second);
  sink_->OnVerdict(verdict);
}

const ReplicaGroupInfo* ComparableGroup(const ProcessFacts& facts,
                                        uint32_t variable) {
  const ReplicaGroupInfo* group = facts.ownership().GroupOf(variable);
  if (!group || group->evidence.empty() || group->ranks.size() < 2) {
    return nullptr;
  }
  return group;
}

void RankComparison::Fields(Archive& archive) {
  archive(names_, writers_, join_);
}

}  // namespace traincheck
