#include "invariants/relations/call_returns/late_calls.h"

#include <algorithm>
#include <bit>

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

// Up to so many members each of them is worth a report, so that people see it
// grow. Behind that reports double it: a thousand ranks that come one after the
// other make a few dozen, each with all that is known by then.
bool IsWorthTelling(size_t members) {
  constexpr size_t kFew = 8;
  return members <= kFew || std::has_single_bit(members);
}

}  // namespace

bool LateCalls::Kind::Has(int32_t rank) const {
  return std::binary_search(ranks->begin(), ranks->end(), rank);
}

void LateCalls::Kind::Add(std::optional<uint64_t> begun) {
  if (begun) ++counts[*begun];
}

void LateCalls::Kind::Remove(std::optional<uint64_t> begun) {
  if (!begun) return;
  const auto found = counts.find(*begun);
  // Without one: only where a damaged state lists a rank twice.
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

// Calls are numbered from 0: a rank that has begun n of a kind has begun those
// below n. Ranks keep together, so there are few different counts.
size_t LateCalls::Kind::Begun(uint64_t number) const {
  size_t members = 0;
  for (auto at = counts.upper_bound(number); at != counts.end(); ++at) {
    members += at->second;
  }
  return members;
}

std::optional<uint64_t> LateCalls::Begun(const Attempt& attempt, int32_t rank,
                                         uint64_t kind) {
  const auto found = attempt.ranks.find(rank);
  if (found == attempt.ranks.end()) return 0;
  const auto& begun = found->second.begun;
  const auto place = Find(begun, kind);
  if (place != begun.end() && place->first == kind) return place->second;
  if (found->second.lost) return std::nullopt;
  return 0;
}

LateCalls::Kind& LateCalls::KindOf(Attempt* attempt, const SharedCall& call) {
  const auto [found, is_new] = attempt->kinds.try_emplace(call.kind);
  Kind& kind = found->second;
  if (is_new) {
    kind.ranks = call.ranks ? call.ranks
                            : std::make_shared<const std::vector<int32_t>>();
    CountMembers(*attempt, call.kind, &kind);
  }
  return kind;
}

void LateCalls::CountMembers(const Attempt& attempt, uint64_t number,
                             Kind* kind) {
  looks_ += kind->ranks->size();
  for (const int32_t rank : *kind->ranks) {
    kind->Add(Begun(attempt, rank, number));
  }
}

void LateCalls::SetBegun(Attempt* attempt, int32_t rank, uint64_t kind,
                         uint64_t count) {
  auto& begun = attempt->ranks[rank].begun;
  const auto counted = attempt->kinds.find(kind);
  const bool is_counted =
      counted != attempt->kinds.end() && counted->second.Has(rank);
  if (is_counted) {
    counted->second.Remove(Begun(*attempt, rank, kind));
    counted->second.Add(count);
  }
  const auto place = Find(begun, kind);
  if (place != begun.end() && place->first == kind) {
    place->second = count;
  } else {
    begun.insert(place, {kind, count});
  }
}

bool LateCalls::Misses(const Attempt& attempt, const SharedCall& call) {
  const auto kind = attempt.kinds.find(call.kind);
  // The fewest that a member has begun.
  return kind != attempt.kinds.end() && !kind->second.counts.empty() &&
         kind->second.counts.begin()->first <= call.number;
}

// Keeps `late` small: a call from which a member came back in time can return
// and proves nothing, and a call from which all came back is over.
void LateCalls::Forget(Attempt* attempt, uint64_t kind, uint64_t number,
                       const std::vector<int32_t>& ranks) {
  const auto counted = attempt->kinds.find(kind);
  if (counted == attempt->kinds.end()) return;
  // A rank that has begun the next call of the kind has come back from this
  // one.
  if (counted->second.Begun(number + 1) == 0) return;
  // None can be late in it any more.
  if (!Misses(*attempt, {.kind = kind, .number = number + 1})) {
    attempt->late.erase({kind, number});
    attempt->told.erase({kind, number});
    return;
  }
  const auto found = attempt->late.find({kind, number});
  if (found == attempt->late.end()) return;
  for (const int32_t rank : ranks) {
    ++looks_;
    const auto begun = Begun(*attempt, rank, kind);
    if (!begun || *begun <= number + 1) continue;
    // It was late itself. A member that came back in time shows that the call
    // can return.
    if (found->second.contains(rank)) continue;
    attempt->late.erase(found);
    return;
  }
}

// Ranks come in any order: the records of a rank that was late in this call may
// have been read before.
void LateCalls::Begin(uint32_t attempt, int32_t rank, int32_t world,
                      const SharedCall& call) {
  Attempt& here = attempts_[attempt];
  here.world = world;
  SetBegun(&here, rank, call.kind, call.number + 1);
  // The rank makes another call, so it has come back from the one in which it
  // was late, even if that end was not recorded.
  here.late_now.erase(rank);
  // Somebody goes on, so a later standstill is another one.
  here.told_deadlock = false;
  if (call.number > 0) Forget(&here, call.kind, call.number - 1, {rank});
  // Another member has begun the call that was told as late: who misses it is
  // told anew.
  if (deadlock_ || !here.told.contains({call.kind, call.number})) return;
  const Kind& kind = here.kinds.at(call.kind);
  const size_t begun = kind.Begun(call.number);
  if (IsWorthTelling(begun) || begun == kind.ranks->size()) {
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
  LateCall kept = call;
  kept.shared.ranks.reset();
  const SharedCall& shared = kept.shared;
  here.late_now.insert_or_assign(rank, kept);
  if (shared.kind == 0) {
    if (deadlock_) TellIfDeadlock(attempt, &here);
    return;
  }
  const Kind& kind = KindOf(&here, call.shared);
  auto& late = here.late[{shared.kind, shared.number}];
  late[rank] = kept;
  if (!deadlock_) {
    // Nothing is left to come: all that have begun it are late.
    const bool complete = late.size() == kind.Begun(shared.number);
    if (IsWorthTelling(late.size()) || complete) {
      TellLate(attempt, &here, shared);
    }
    return;
  }
  if (shared.collective) TellIfNobodyReturns(attempt, &here, shared);
  Forget(&here, shared.kind, shared.number, *kind.ranks);
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

void LateCalls::LoseCount(uint32_t attempt, int32_t rank) {
  Attempt& here = attempts_[attempt];
  // Calls that were reported as not begun by the rank.
  std::vector<CallKey> unsure;
  for (const CallKey& call : here.told) {
    const auto begun = Begun(here, rank, call.first);
    if (here.kinds.at(call.first).Has(rank) && begun && *begun <= call.second) {
      unsure.push_back(call);
    }
  }
  for (auto& [number, kind] : here.kinds) {
    if (kind.Has(rank)) kind.Remove(Begun(here, rank, number));
  }
  Rank& place = here.ranks[rank];
  place.begun.clear();
  place.lost = true;
  // It may have come back where the records are missing.
  here.late_now.erase(rank);
  for (auto& [call, late] : here.late) late.erase(rank);
  std::erase_if(here.late,
                [](const auto& call) { return call.second.empty(); });
  for (const auto& [kind, number] : unsure) {
    TellLate(attempt, &here, {.kind = kind, .number = number});
  }
}

void LateCalls::EndRank(uint32_t attempt, int32_t rank,
                        const std::string& how) {
  Attempt& here = attempts_[attempt];
  std::optional<uint32_t>& ended = here.ranks[rank].ended;
  if (!ended) ++here.ended;
  ended = endings_.Number(how);
  // The rank may have been the only one that was not waiting.
  if (deadlock_) TellIfDeadlock(attempt, &here);
  if (here.ended < static_cast<size_t>(here.world)) return;
  // Nobody is left who could wait.
  here.late_now.clear();
  here.late.clear();
  here.told.clear();
  here.kinds.clear();
}

// Reports a late call and where every member stands by now. Called again when
// more members have joined in.
void LateCalls::TellLate(uint32_t number, Attempt* attempt,
                         const SharedCall& call) {
  const auto late = attempt->late.find({call.kind, call.number});
  if (late == attempt->late.end()) return;
  Standstill told;
  told.attempt = number;
  told.unit = call.kind;
  told.ranks = *attempt->kinds.at(call.kind).ranks;
  told.late = late->second;
  // The same standstill, of which more is known now, is not a second violation.
  // The call is kept: members that begin it later change what is said of it
  // (Begin).
  told.again = !attempt->told.insert({call.kind, call.number}).second;
  for (const int32_t rank : told.ranks) {
    if (told.late.count(rank) > 0) continue;
    const auto begun = Begun(*attempt, rank, call.kind);
    std::string& words = told.others[rank];
    if (begun && *begun > call.number) {
      words = "has begun it";
      continue;
    }
    words =
        begun ? "has not begun it" : "may have begun it (records are missing)";
    // A member that has ended can never begin the call: how it ended stands
    // beside that.
    const auto place = attempt->ranks.find(rank);
    const std::string end =
        place == attempt->ranks.end() ? "" : EndOf(place->second);
    if (!end.empty()) words += " and " + end;
  }
  listener_(told);
}

void LateCalls::TellIfNobodyReturns(uint32_t number, Attempt* attempt,
                                    const SharedCall& call) {
  const auto found = attempt->late.find({call.kind, call.number});
  // All members are late in it, so all have begun it: nobody is left who could
  // make it go on.
  // None at all: only in a saved state that is damaged.
  const auto& ranks = attempt->kinds.at(call.kind).ranks;
  if (found == attempt->late.end() || found->second.size() < ranks->size()) {
    return;
  }
  Standstill told;
  told.attempt = number;
  told.unit = call.kind;
  told.ranks = *ranks;
  told.late = std::move(found->second);
  attempt->late.erase(found);
  listener_(told);
}

// Proves that no rank can go on by itself. Asked at each late call and each end
// of a rank; costs a look at each rank, up to the first that may go on.
bool LateCalls::IsDeadlock(const Attempt& attempt) {
  if (attempt.world < 2) return false;
  // Some rank works or has shown nothing: found without asking each of them.
  if (attempt.late_now.size() + attempt.ended <
      static_cast<size_t>(attempt.world)) {
    return false;
  }
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
  std::vector<int32_t> list;
  if (ranks) list = *ranks;
  archive(kind, number, list, collective);
  if (!archive.reading()) return;
  ranks.reset();
  if (!list.empty()) {
    ranks = std::make_shared<const std::vector<int32_t>>(std::move(list));
  }
}

void LateCall::Fields(Archive& archive) {
  archive(shared, function, site, step, brings, limit);
}

void LateCalls::Fields(Archive& archive) {
  archive(endings_, attempts_);
  if (!archive.reading()) return;
  for (auto& [number, attempt] : attempts_) {
    for (const auto& [rank, place] : attempt.ranks) {
      attempt.ended += place.ended.has_value();
    }
    for (auto& [kind, members] : attempt.kinds) {
      CountMembers(attempt, kind, &members);
    }
    // Code above takes for granted that each late call has its kind. The bytes
    // may be damaged.
    const auto check = [&](uint64_t kind) {
      if (!attempt.kinds.contains(kind)) {
        archive.Fail("a late call is of no kind");
      }
    };
    for (const auto& [call, late] : attempt.late) check(call.first);
    for (const CallKey& call : attempt.told) check(call.first);
  }
  if (!archive.ok()) attempts_.clear();
}

void LateCalls::Rank::Fields(Archive& archive) { archive(begun, lost, ended); }

void LateCalls::Kind::Fields(Archive& archive) {
  std::vector<int32_t> list;
  if (ranks) list = *ranks;
  archive(list);
  if (archive.reading()) {
    ranks = std::make_shared<const std::vector<int32_t>>(std::move(list));
  }
}

void LateCalls::Attempt::Fields(Archive& archive) {
  archive(world, ranks, late_now, late, told, told_deadlock, kinds);
}

}  // namespace traincheck
