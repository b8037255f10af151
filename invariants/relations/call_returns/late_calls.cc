#include "invariants/relations/call_returns/late_calls.h"

#include <algorithm>

namespace traincheck {

namespace {

// What ranks that wait for each other have in common.
constexpr uint64_t kDeadlockUnit = 0;

}  // namespace

uint64_t LateCalls::Begun(const Attempt& attempt, int32_t rank, uint64_t kind) {
  const auto found = attempt.ranks.find(rank);
  if (found == attempt.ranks.end()) return 0;
  const auto begun = found->second.begun.find(kind);
  return begun == found->second.begun.end() ? 0 : begun->second;
}

bool LateCalls::Misses(const Attempt& attempt, const SharedCall& call) {
  return std::any_of(call.ranks.begin(), call.ranks.end(), [&](int32_t rank) {
    return Begun(attempt, rank, call.kind) <= call.number;
  });
}

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

void LateCalls::Begin(uint32_t attempt, int32_t rank, int32_t world,
                      const SharedCall& call) {
  Attempt& here = attempts_[attempt];
  here.world = world;
  Rank& place = here.ranks[rank];
  place.begun[call.kind] = call.number + 1;
  place.late.reset();
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
  here.ranks[rank].late = call;
  if (call.shared.kind != 0) {
    here.late[{call.shared.kind, call.shared.number}][rank] = call;
  }
  if (!deadlock_) return TellLate(attempt, &here, call.shared);
  if (call.shared.collective) TellIfNobodyReturns(attempt, &here, call.shared);
  if (call.shared.kind != 0) Forget(&here, call.shared);
  TellIfDeadlock(attempt, &here);
}

void LateCalls::Return(uint32_t attempt, int32_t rank) {
  Attempt& here = attempts_[attempt];
  here.ranks[rank].late.reset();
  here.told_deadlock = false;
}

void LateCalls::EndRank(uint32_t attempt, int32_t rank,
                        const std::string& how) {
  Attempt& here = attempts_[attempt];
  here.ranks[rank].ended = how;
  if (deadlock_) TellIfDeadlock(attempt, &here);
}

void LateCalls::TellLate(uint32_t number, Attempt* attempt,
                         const SharedCall& call) {
  const auto late = attempt->late.find({call.kind, call.number});
  if (call.kind == 0 || late == attempt->late.end()) return;
  const auto [first, is_new] =
      attempt->told.try_emplace(call.kind, call.number);
  Standstill told;
  told.attempt = number;
  told.unit = call.kind;
  told.ranks = call.ranks;
  told.late = late->second;
  told.again = !is_new && first->second == call.number;
  for (const int32_t rank : call.ranks) {
    if (told.late.count(rank) > 0) continue;
    if (Begun(*attempt, rank, call.kind) > call.number) {
      told.others[rank] = "has begun it";
      continue;
    }
    const Rank& other = attempt->ranks[rank];
    told.others[rank] = "has not begun it";
    if (!other.ended.empty()) told.others[rank] += " and " + other.ended;
  }
  listener_(told);
}

void LateCalls::TellIfNobodyReturns(uint32_t number, Attempt* attempt,
                                    const SharedCall& call) {
  const auto found = attempt->late.find({call.kind, call.number});
  // All members are late in it, so all have begun it: nobody is left who could
  // make it go on.
  if (found->second.size() < call.ranks.size()) return;
  Standstill told;
  told.attempt = number;
  told.unit = call.kind;
  told.ranks = call.ranks;
  told.late = std::move(found->second);
  attempt->late.erase(found);
  listener_(told);
}

bool LateCalls::IsDeadlock(const Attempt& attempt) {
  if (attempt.world < 2) return false;
  std::set<CallKey> calls;
  for (int32_t rank = 0; rank < attempt.world; ++rank) {
    const auto found = attempt.ranks.find(rank);
    // A rank that has shown nothing yet may still be on its way.
    if (found == attempt.ranks.end()) return false;
    const std::optional<LateCall>& late = found->second.late;
    if (!late && found->second.ended.empty()) return false;
    if (!late) continue;
    // Where all have begun the call, the rank waits for nobody: it is busy.
    const SharedCall& call = late->shared;
    if (call.kind == 0 || !Misses(attempt, call)) return false;
    calls.insert({call.kind, call.number});
  }
  const bool ended =
      std::any_of(attempt.ranks.begin(), attempt.ranks.end(),
                  [](const auto& rank) { return !rank.second.late; });
  // All in one call: it is told once nobody comes back from it.
  return calls.size() > 1 || (ended && !calls.empty());
}

void LateCalls::TellIfDeadlock(uint32_t number, Attempt* attempt) {
  if (attempt->told_deadlock || !IsDeadlock(*attempt)) return;
  attempt->told_deadlock = true;
  Standstill told;
  told.attempt = number;
  told.unit = kDeadlockUnit;
  for (const auto& [rank, place] : attempt->ranks) {
    told.ranks.push_back(rank);
    if (place.late) {
      told.late[rank] = *place.late;
    } else {
      told.others[rank] = place.ended;
    }
  }
  listener_(told);
}

}  // namespace traincheck
