#include "invariants/rules/replica_join.h"

#include <algorithm>
#include <iterator>

namespace traincheck {

namespace {

using Values = std::vector<ReplicaValue>;
using Comparison = ReplicaJoin::Comparison;

bool SameDigests(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ReplicaValue& x, const ReplicaValue& y) {
                      return x.variable == y.variable && x.digest == y.digest;
                    });
}

// How many variables do not have the digest of the window before; those that
// only the longer list has count as changed. Both lists are sorted by variable.
uint32_t CountChanged(const Values& before, const Values& now) {
  uint32_t same = 0;
  auto old = before.begin();
  for (const ReplicaValue& value : now) {
    while (old != before.end() && old->variable < value.variable) ++old;
    same += old != before.end() && old->variable == value.variable &&
            old->digest == value.digest;
  }
  return static_cast<uint32_t>(std::max(before.size(), now.size())) - same;
}

// Compares what both members have; both lists are sorted by variable. A
// difference outweighs what is missing: no later record can undo it.
Comparison Compare(const Values& a, const Values& b) {
  // Replicas agree in nearly all windows.
  if (SameDigests(a, b)) return Comparison::kEqual;
  size_t common = 0;
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() && right != b.end()) {
    if (left->variable < right->variable) {
      ++left;
    } else if (right->variable < left->variable) {
      ++right;
    } else {
      if (left->digest != right->digest) return Comparison::kDiffers;
      ++common;
      ++left;
      ++right;
    }
  }
  return common == a.size() && common == b.size() ? Comparison::kEqual
                                                  : Comparison::kIncomplete;
}

// Every member against the first. Only if that leaves something open each pair
// is compared.
Comparison CompareAll(const ReplicaMembers& members) {
  Comparison result = Comparison::kEqual;
  for (auto a = members.begin(); a != members.end(); ++a) {
    for (auto b = std::next(a); b != members.end(); ++b) {
      const Comparison one = Compare(a->second.values, b->second.values);
      if (one == Comparison::kDiffers) return one;
      if (one == Comparison::kIncomplete) result = one;
    }
    // Equal to the first is equal to each other, if all were complete.
    if (result == Comparison::kEqual) break;
  }
  return result;
}

}  // namespace

void ReplicaJoin::Add(const ReplicaUnit& unit, int32_t rank, uint64_t index,
                      ReplicaWindow window) {
  // Its windows may be judged by now without it.
  if (ended_.count({unit.attempt, rank})) return;
  State& state = units_[unit];
  // A member that closes this window has passed all before it, also those of
  // which it has recorded nothing.
  state.progress[rank] = index + 1;
  // Another window is the first one now, so the members that have closed it are
  // found anew.
  if (state.open.empty() || index < state.open.begin()->first) {
    state.closed = 0;
  }
  Insert(rank, std::move(window), &state.open[index]);
  // Each member's window may be the one that the first open window waits for.
  Advance(unit, &state);
}

void ReplicaJoin::Insert(int32_t rank, ReplicaWindow window, Window* into) {
  const bool first = into->members.empty();
  const auto [member, is_new] =
      into->members.insert_or_assign(rank, std::move(window));
  if (first) into->comparison = Comparison::kEqual;
  // What was found with the member's values of before is worth nothing.
  if (!is_new) into->comparison.reset();
  if (first || !into->comparison) return;
  if (*into->comparison == Comparison::kDiffers) return;
  // Equal to one of those that are equal to each other is equal to all.
  const bool one_is_enough = *into->comparison == Comparison::kEqual;
  for (auto& [other, known] : into->members) {
    if (other == rank) continue;
    ++looks_;
    const Comparison one = Compare(member->second.values, known.values);
    if (one != Comparison::kEqual) into->comparison = one;
    if (one == Comparison::kDiffers) return;
    if (one_is_enough && one == Comparison::kEqual) return;
  }
}

void ReplicaJoin::EndRank(uint32_t attempt, int32_t rank,
                          const std::string& reason) {
  if (ended_.contains({attempt, rank})) return;
  ended_[{attempt, rank}] = reasons_.Number(reason);
  for (auto at = units_.begin(); at != units_.end();) {
    auto& [unit, state] = *at;
    // Windows of the unit may have waited for this rank alone.
    const bool is_of_attempt = unit.attempt == attempt;
    if (is_of_attempt) Advance(unit, &state);
    const bool is_over = is_of_attempt && IsOver(unit, &state);
    const auto next = std::next(at);
    // Once it is over all is judged, and what comes all the same is not looked
    // at.
    if (is_over) listener_->OnOver(units_.extract(at).key());
    at = next;
  }
}

bool ReplicaJoin::HasUnits(uint32_t attempt) const {
  const auto first = units_.lower_bound({attempt, 0, {}, 0});
  return first != units_.end() && first->first.attempt == attempt;
}

// Members that are still missing will not come: Advance now judges all that is
// open, with the reason why it is unknown.
void ReplicaJoin::EndRun() {
  run_ended_ = true;
  for (auto& [unit, state] : units_) Advance(unit, &state);
}

void ReplicaJoin::Fields(Archive& archive) {
  archive(units_, reasons_, ended_, run_ended_);
  for (const auto& [unit, state] : units_) {
    for (const auto& [index, window] : state.open) {
      // Tell takes the first member for granted. The bytes may be damaged.
      if (window.members.empty()) archive.Fail("a window has no members");
    }
  }
  if (!archive.ok()) units_.clear();
}

// What a member has closed stays closed: those that were found to have closed
// the first open window are not asked again.
bool ReplicaJoin::IsComplete(const ReplicaUnit& unit, State* state,
                             uint64_t index) {
  if (run_ended_) return true;
  for (; state->closed < unit.ranks.size(); ++state->closed) {
    ++looks_;
    const int32_t rank = unit.ranks[state->closed];
    const auto progress = state->progress.find(rank);
    const bool passed =
        progress != state->progress.end() && progress->second > index;
    if (!passed && !ended_.contains({unit.attempt, rank})) return false;
  }
  return true;
}

// As IsComplete: none is asked again.
bool ReplicaJoin::IsOver(const ReplicaUnit& unit, State* state) {
  for (; state->ended < unit.ranks.size(); ++state->ended) {
    ++looks_;
    const int32_t rank = unit.ranks[state->ended];
    if (!ended_.contains({unit.attempt, rank})) return false;
  }
  return true;
}

void ReplicaJoin::Advance(const ReplicaUnit& unit, State* state) {
  while (!state->open.empty()) {
    const uint64_t index = state->open.begin()->first;
    if (!IsComplete(unit, state, index)) {
      // Windows behind this one wait, also if they differ: verdicts of a unit
      // come in their order.
      Tell(unit, state, index, /*early=*/true);
      return;
    }
    Tell(unit, state, index, /*early=*/false);
    state->open.erase(state->open.begin());
    state->closed = 0;
  }
}

// The same whenever it is asked: a member that went past the window sent
// nothing of it, however it ended later.
std::string ReplicaJoin::Missing(const ReplicaUnit& unit, const State& state,
                                 uint64_t index) const {
  const Window& window = state.open.at(index);
  // In the order of the ranks, so that the reason does not depend on which
  // member came first.
  for (int32_t rank : unit.ranks) {
    const auto member = window.members.find(rank);
    if (member != window.members.end()) {
      if (!member->second.unknown.empty()) return member->second.unknown;
      continue;
    }
    const auto progress = state.progress.find(rank);
    const bool passed =
        progress != state.progress.end() && progress->second > index;
    const auto ended = ended_.find({unit.attempt, rank});
    if (!passed && ended != ended_.end()) {
      return "rank " + std::to_string(rank) + " " +
             reasons_.Text(ended->second);
    }
    return "rank " + std::to_string(rank) + " sent no records of it";
  }
  return "";
}

void ReplicaJoin::Tell(const ReplicaUnit& unit, State* state, uint64_t index,
                       bool early) {
  Window& window = state->open.begin()->second;
  if (!window.comparison) window.comparison = CompareAll(window.members);
  const Comparison comparison = *window.comparison;
  JudgedWindow judged;
  judged.index = index;
  judged.differs = comparison == Comparison::kDiffers;
  judged.early = early;
  judged.again = window.told;
  judged.members = &window.members;
  // More members can make equal ones differ, and never the other way round. An
  // early window is reported once.
  if (early && (!judged.differs || window.told)) return;
  window.told = true;
  if (!early) {
    const Values& values = window.members.begin()->second.values;
    // By the first member: of equal members each would do.
    if (state->has_last) judged.varied = CountChanged(state->last, values);
    state->last = values;
    state->has_last = true;
    judged.unknown = Missing(unit, *state, index);
    if (judged.unknown.empty() && comparison == Comparison::kIncomplete) {
      judged.unknown = "the members recorded different variables";
    }
  }
  listener_->OnJudged(unit, judged);
}

void ReplicaValue::Fields(Archive& archive) {
  archive(variable, writer, digest);
}

void ReplicaWindow::Fields(Archive& archive) {
  archive(step, values, shown, unknown);
}

void ReplicaUnit::Fields(Archive& archive) {
  archive(attempt, rule, ranks, ordinal);
}

void ReplicaJoin::Window::Fields(Archive& archive) { archive(members, told); }

void ReplicaJoin::State::Fields(Archive& archive) {
  archive(open, progress, last, has_last);
}

}  // namespace traincheck
