#include "invariants/relations/call_returns/late_calls.h"

#include <algorithm>

namespace traincheck {

namespace {

// Deadlocks have one unit of their own: the ranks may wait in calls of
// different kinds.
constexpr uint64_t kDeadlockUnit = 0;

// Of a sorted list of pairs: the place of the first one from `kind` on.
template <typename List>
auto Find(List& begun, uint64_t kind) {
  return std::lower_bound(
      begun.begin(), begun.end(), kind,
      [](const auto& one, uint64_t wanted) { return one.first < wanted; });
}

void SetBegun(uint64_t kind, uint64_t count,
              std::vector<std::pair<uint64_t, uint64_t>>* begun) {
  const auto place = Find(*begun, kind);
  if (place != begun->end() && place->first == kind) {
    place->second = count;
  } else {
    begun->insert(place, {kind, count});
  }
}

}  // namespace

uint64_t LateCalls::Begun(const Attempt& attempt, int32_t rank, uint64_t kind) {
  const auto found = attempt.ranks.find(rank);
  if (found == attempt.ranks.end()) return 0;
  const auto& begun = found->second.begun;
  const auto place = Find(begun, kind);
  return place != begun.end() && place->first == kind ? place->second : 0;
}

// Calls are numbered from 0: a rank that has begun n of a kind has begun those
// below n.
bool LateCalls::Misses(const Attempt& attempt, const SharedCall& call) {
  return std::any_of(call.ranks.begin(), call.ranks.end(), [&](int32_t rank) {
    return Begun(attempt, rank, call.kind) <= call.number;
  });
}

// Keeps `late` small: a call from which a member came back in time can return
// and proves nothing, and a call from which all came back is over.
void LateCalls::Forget(Attempt* attempt, const SharedCall& call) {
  const auto found = attempt->late.find({call.kind, call.number});
  if (found == attempt->late.end()) return;
  size_t returned = 0;
  for (const int32_t rank : call.ranks) {
    // A rank that has begun the next call of the kind has come back from this
    // one.
    if (Begun(*attempt, rank, call.kind) <= call.number + 1) continue;
    ++returned;
    // It was late itself. A member that came back in time shows that the call
    // can return.
    if (found->second.count(rank) > 0) continue;
    attempt->late.erase(found);
    return;
  }
  if (returned == call.ranks.size()) attempt->late.erase(found);
}

// Ranks come in any order: the records of a rank that was late in this call may
// have been read before.
void LateCalls::Begin(uint32_t attempt, int32_t rank, int32_t world,
                      const SharedCall& call) {
  Attempt& here = attempts_[attempt];
  here.world = world;
  SetBegun(call.kind, call.number + 1, &here.ranks[rank].begun);
  // The rank makes another call, so it has come back from the one in which it
  // was late, even if that end was not recorded.
  here.late_now.erase(rank);
  // Somebody goes on, so a later standstill is another one.
  here.told_deadlock = false;
  if (call.number > 0) {
    SharedCall before = call;
    --before.number;
    Forget(&here, before);
  }
  const auto told = here.told.find(call.kind);
  // Another member has begun the call that was told as late: who misses it is
  // told anew.
  if (!deadlock_ && told != here.told.end() && told->second == call.number) {
    TellLate(attempt, &here, call);
  }
}

void LateCalls::OnLate(uint32_t attempt, int32_t rank, int32_t world,
                       const LateCall& call) {
  Attempt& here = attempts_[attempt];
  here.world = world;
  // Makes the rank known: IsDeadlock takes one that has shown nothing for one
  // that may still come.
  here.ranks[rank];
  here.late_now.insert_or_assign(rank, call);
  if (call.shared.kind != 0) {
    here.late[{call.shared.kind, call.shared.number}][rank] = call;
  }
  if (!deadlock_) return TellLate(attempt, &here, call.shared);
  if (call.shared.collective) TellIfNobodyReturns(attempt, &here, call.shared);
  if (call.shared.kind != 0) Forget(&here, call.shared);
  TellIfDeadlock(attempt, &here);
}

// The call stays in `late`: the other members that wait in it go on being late,
// and Forget decides when it is over.
void LateCalls::Return(uint32_t attempt, int32_t rank) {
  Attempt& here = attempts_[attempt];
  here.ranks[rank];
  here.late_now.erase(rank);
  here.told_deadlock = false;
}

void LateCalls::EndRank(uint32_t attempt, int32_t rank,
                        const std::string& how) {
  Attempt& here = attempts_[attempt];
  here.ranks[rank].ended = endings_.Number(how);
  // The rank may have been the only one that was not waiting.
  if (deadlock_) TellIfDeadlock(attempt, &here);
}

// Reports a late call and where every member stands by now. Called again
// whenever a member joins in.
void LateCalls::TellLate(uint32_t number, Attempt* attempt,
                         const SharedCall& call) {
  const auto late = attempt->late.find({call.kind, call.number});
  if (call.kind == 0 || late == attempt->late.end()) return;
  // The first late call of each kind is kept: members that begin it later
  // change what is said of it (Begin).
  const auto [first, is_new] =
      attempt->told.try_emplace(call.kind, call.number);
  Standstill told;
  told.attempt = number;
  told.unit = call.kind;
  told.ranks = call.ranks;
  told.late = late->second;
  // The same standstill, of which more is known now, is not a second violation.
  told.again = !is_new && first->second == call.number;
  for (const int32_t rank : call.ranks) {
    if (told.late.count(rank) > 0) continue;
    if (Begun(*attempt, rank, call.kind) > call.number) {
      told.others[rank] = "has begun it";
      continue;
    }
    // A member that has ended can never begin the call: how it ended stands
    // beside that.
    const std::string end = EndOf(attempt->ranks[rank]);
    told.others[rank] = "has not begun it";
    if (!end.empty()) told.others[rank] += " and " + end;
  }
  listener_(told);
}

void LateCalls::TellIfNobodyReturns(uint32_t number, Attempt* attempt,
                                    const SharedCall& call) {
  const auto found = attempt->late.find({call.kind, call.number});
  // All members are late in it, so all have begun it: nobody is left who could
  // make it go on.
  // None at all: only in a saved state that is damaged.
  if (found == attempt->late.end() ||
      found->second.size() < call.ranks.size()) {
    return;
  }
  Standstill told;
  told.attempt = number;
  told.unit = call.kind;
  told.ranks = call.ranks;
  told.late = std::move(found->second);
  attempt->late.erase(found);
  listener_(told);
}

// Proves that no rank can go on by itself. Asked at each late call and each end
// of a rank; costs a look at each rank, up to the first that may go on.
bool LateCalls::IsDeadlock(const Attempt& attempt) {
  if (attempt.world < 2) return false;
  std::set<CallKey> calls;
  for (int32_t rank = 0; rank < attempt.world; ++rank) {
    const auto found = attempt.ranks.find(rank);
    // A rank that has shown nothing yet may still be on its way.
    if (found == attempt.ranks.end()) return false;
    const auto late = attempt.late_now.find(rank);
    const bool is_late = late != attempt.late_now.end();
    // It works, and may begin next what the others wait for.
    if (!is_late && !found->second.ended) return false;
    if (!is_late) continue;
    // Where all have begun the call, the rank waits for nobody: it is busy.
    const SharedCall& call = late->second.shared;
    if (call.kind == 0 || !Misses(attempt, call)) return false;
    calls.insert({call.kind, call.number});
  }
  // Ranks in different calls wait for each other; ranks in one call wait for
  // one that has ended before it.
  const bool ended = std::any_of(
      attempt.ranks.begin(), attempt.ranks.end(),
      [&](const auto& rank) { return !attempt.late_now.contains(rank.first); });
  // All in one call: it is told once nobody comes back from it.
  return calls.size() > 1 || (ended && !calls.empty());
}

void LateCalls::TellIfDeadlock(uint32_t number, Attempt* attempt) {
  // Told once until some rank goes on: further ranks that end do not change it.
  if (attempt->told_deadlock || !IsDeadlock(*attempt)) return;
  attempt->told_deadlock = true;
  Standstill told;
  told.attempt = number;
  told.unit = kDeadlockUnit;
  for (const auto& [rank, place] : attempt->ranks) {
    told.ranks.push_back(rank);
    const auto late = attempt->late_now.find(rank);
    if (late != attempt->late_now.end()) {
      told.late[rank] = late->second;
    } else {
      told.others[rank] = EndOf(place);
    }
  }
  listener_(told);
}

void SharedCall::Fields(Archive& archive) {
  archive(kind, number, ranks, collective);
}

void LateCall::Fields(Archive& archive) {
  archive(shared, function, site, step, brings, limit);
}

void LateCalls::Fields(Archive& archive) { archive(endings_, attempts_); }

void LateCalls::Rank::Fields(Archive& archive) { archive(begun, ended); }

void LateCalls::Attempt::Fields(Archive& archive) {
  archive(world, ranks, late_now, late, told, told_deadlock);
}

}  // namespace traincheck
