#include "invariants/relations/consistent/update_comparison.h"

#include <algorithm>
#include <utility>

#include "invariants/rules/subjects.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// A rank that makes no such steps would let the windows of the others wait
// until it ends. Ranks that keep replicas equal are never so far apart.
constexpr uint64_t kMostWaiting = 1024;

// The three values of a parameter lie beside each other in a ReplicaWindow.
// These are their offsets.
enum Kind : uint32_t { kGiven, kAfter, kGradAtStep, kKinds };

using Members = ReplicaMembers;

// Values are sorted by their number (Add).
const ReplicaValue* Find(const ReplicaWindow& window, uint32_t number) {
  const auto found =
      std::lower_bound(window.values.begin(), window.values.end(), number,
                       [](const ReplicaValue& value, uint32_t wanted) {
                         return value.variable < wanted;
                       });
  return found != window.values.end() && found->variable == number ? &*found
                                                                   : nullptr;
}

// Do all members have this value, and an equal one?
bool AllEqual(const Members& members, uint32_t number) {
  const ReplicaValue* first = Find(members.begin()->second, number);
  return first && std::all_of(members.begin(), members.end(), [&](auto& row) {
           const ReplicaValue* value = Find(row.second, number);
           return value && value->digest == first->digest;
         });
}

// Names of the parameters with evidence of replication: data, gradient, rate
// and shape are equal on all ranks, so each optimizer must make the same of
// them.
std::vector<uint32_t> Replicated(const Members& members) {
  std::vector<uint32_t> names;
  // What the first member lacks is not shown by all, so its values are enough.
  for (const ReplicaValue& value : members.begin()->second.values) {
    if (value.variable % kKinds == kGiven &&
        AllEqual(members, value.variable)) {
      names.push_back(value.variable / kKinds);
    }
  }
  return names;
}

// Why not all is known of the window; "": all is. Members that show different
// parameters are not a reason: sharded ones are on some ranks alone, and only
// what all show is judged.
std::string Missing(const ReplicaUnit& unit, const JudgedWindow& window) {
  const bool whole =
      window.members->size() == unit.ranks.size() &&
      std::all_of(window.members->begin(), window.members->end(),
                  [](auto& row) { return row.second.unknown.empty(); });
  return whole ? "" : window.unknown;
}

}  // namespace

void UpdateComparison::Add(const ProcessFacts& facts, size_t rule,
                           UpdateWindow window) {
  // Nothing is begun anew of a unit that is over.
  if (join_.HasEnded(facts.attempt(), *facts.rank())) return;
  const ReplicaUnit unit{facts.attempt(), rule, std::move(window.ranks),
                         window.ordinal};
  Unit& state = units_[unit];
  if (state.given_up) return;
  // Several ranks bring the same window, which waits once.
  if (window.index >= state.next) {
    state.next = window.index + 1;
    ++state.waiting;
  }
  // With evidence the rule speaks of these ranks, and windows wait however long
  // it takes.
  state.given_up = state.waiting > kMostWaiting && !state.evidence;
  ReplicaWindow joined;
  joined.step = window.step;
  joined.unknown = std::move(window.unknown);
  WriterNumbers writers(facts, &writers_);
  for (const Update& update : window.updates) {
    // One number for a name and a kind, so that the three values of a parameter
    // travel as values of a plain window.
    const uint32_t first = names_.Number(update.name) * kKinds;
    const uint32_t writer = writers.Of(update.writer);
    joined.values.push_back({first + kGiven, writer, update.given});
    joined.values.push_back({first + kAfter, writer, update.after});
    // Not compared for a verdict: it says whether gradients parted between the
    // backward and the step, where ranks may clip them.
    if (update.grad_at_step) {
      joined.values.push_back(
          {first + kGradAtStep, writer, *update.grad_at_step});
    }
  }
  std::sort(joined.values.begin(), joined.values.end(),
            [](const ReplicaValue& a, const ReplicaValue& b) {
              return a.variable < b.variable;
            });
  join_.Add(unit, *facts.rank(), window.index, std::move(joined));
}

// Windows that differ early are left aside: evidence of replication needs all
// ranks.
void UpdateComparison::OnJudged(const ReplicaUnit& unit,
                                const JudgedWindow& window) {
  if (window.early) return;
  Unit& state = units_[unit];
  if (state.waiting > 0) --state.waiting;
  const std::string missing = Missing(unit, window);
  std::vector<uint32_t> replicated;
  // Evidence needs every rank: a sharded parameter may be equal on some.
  if (window.members->size() == unit.ranks.size()) {
    replicated = Replicated(*window.members);
  }
  // Groups that never had evidence are not the rule's affair, and their missing
  // records do not make it unknown.
  const bool may_have_had_some = state.evidence && !missing.empty();
  if (replicated.empty() && !may_have_had_some) return;
  state.evidence = true;
  std::vector<uint32_t> differ;
  for (const uint32_t name : replicated) {
    if (!AllEqual(*window.members, name * kKinds + kAfter)) {
      differ.push_back(name);
    }
  }
  Verdict verdict = NewVerdict(unit, window);
  verdict.trials = static_cast<uint32_t>(replicated.size());
  if (!differ.empty()) {
    MarkViolated(unit, window, &verdict);
    verdict.finding = Describe(unit, window, differ, replicated.size());
  } else if (!missing.empty()) {
    verdict.outcome = Outcome::kUnknown;
    verdict.reason = missing;
  }
  sink_->OnVerdict(verdict);
}

Finding UpdateComparison::Describe(const ReplicaUnit& unit,
                                   const JudgedWindow& window,
                                   const std::vector<uint32_t>& differ,
                                   size_t judged) const {
  Finding finding;
  bool gradients_differ = false;
  for (const uint32_t name : differ) {
    finding.variables.push_back(names_.Text(name));
    gradients_differ |= !AllEqual(*window.members, name * kKinds + kGradAtStep);
    const ReplicaValue* after =
        Find(window.members->begin()->second, name * kKinds + kAfter);
    if (!after) continue;  // of a state that was damaged
    AddWriter(PartsOf(writers_.Text(after->writer)), &finding);
  }
  std::sort(finding.variables.begin(), finding.variables.end());
  finding.subjects = {OptimizerSubject(unit.ordinal)};
  finding.expected =
      "equal parameters on " + RankWords(unit.ranks) +
      " when the step ends, as they were equal before and got equal gradients";
  finding.seen = std::to_string(differ.size()) + " of " +
                 std::to_string(judged) +
                 " differ: " + ListWords(finding.variables, 3) + "; between " +
                 RankWords(unit.ranks);
  if (gradients_differ) {
    finding.seen +=
        "; their gradients were equal when the backward ended and differ when "
        "the step begins";
  }
  return finding;
}

void UpdateComparison::Fields(Archive& archive) {
  archive(names_, writers_, units_, join_);
}

void UpdateComparison::Unit::Fields(Archive& archive) {
  archive(evidence, next, waiting, given_up);
}

}  // namespace traincheck
