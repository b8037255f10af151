#include "server/runs/attempts.h"

#include <algorithm>
#include <map>
#include <set>

namespace traincheck::server {
namespace {

// A script may start several processes without a group, each of them rank 0 of
// 1. Their places are all the same, so they do not show that a new start began.
bool HasGroup(const stored::Process& process) {
  return process.has_world() && process.world() > 1;
}

// A process that is left out of checks, because another one holds its rank,
// moves no later process to another attempt.
bool IsPlaced(const stored::Process& process) {
  return IsMain(process) && process.has_rank() &&
         process.place_conflict().empty();
}

// A host counts its pids and ticks anew after each boot, so the name of the
// host alone does not identify where a process ran.
bool OnOneMachine(const stored::Process& a, const stored::Process& b) {
  return a.host() == b.host() && a.boot_id() == b.boot_id();
}

// Did a later program of one and the same process (exec) record the first?
bool IsLaterImage(const stored::Process& later, const stored::Process& before) {
  return later.image() != before.image() && later.pid() == before.pid() &&
         later.start_ticks() == before.start_ticks() &&
         OnOneMachine(later, before) &&
         later.started_unix_ns() >= before.started_unix_ns();
}

// Did one and the same process start both? Then they may run side by side.
bool AreSiblings(const stored::Process& a, const stored::Process& b) {
  return a.parent_pid() != 0 && a.parent_pid() == b.parent_pid() &&
         OnOneMachine(a, b);
}

// Had the other ended when this one started? By the clocks of their machines
// where the end was seen there; else, of older agents, by the daemon's.
bool EndedBefore(const stored::Process& other, const stored::Process& process) {
  // An exec has ended the program before it, whatever the books say of that one
  // by now.
  if (IsLaterImage(process, other)) return true;
  if (!HasEnded(other)) return false;
  const uint64_t end_unix_ns = other.ended_unix_ns() != 0
                                   ? other.ended_unix_ns()
                                   : other.state_since_unix_ns();
  return process.started_unix_ns() == 0 ||
         process.started_unix_ns() >= end_unix_ns;
}

// Has the other ended before this process was there at all? A rank that imports
// for long records late, and belongs to those that have trained meanwhile.
bool EndedBeforeStartOf(const stored::Process& process,
                        const stored::Process& other) {
  // A time that an older agent does not send is 0 and speaks against nothing.
  return EndedBefore(other, process) &&
         (process.process_started_unix_ns() == 0 ||
          other.ended_unix_ns() == 0 ||
          process.process_started_unix_ns() >= other.ended_unix_ns());
}

// The attempts that are over, as far as `process` is concerned, which no nonce
// places. Those without a group make an attempt of their own only behind all
// those before.
std::set<uint32_t> AttemptsThatAreOver(const RunState& run,
                                       const stored::Process& process) {
  struct Attempt {
    bool all_ended_before = true;
    bool replaced = false;
  };
  std::map<uint32_t, Attempt> attempts;
  bool is_child = false;
  ForEachProcess(run, [&](const stored::Process& other) {
    is_child |= IsChildOf(process, other);
    // Numbers ascend as processes come. Those that came later look at this one,
    // so that it does not move because of them.
    const bool comparable = other.number() < process.number() &&
                            IsPlaced(other) &&
                            HasGroup(other) == HasGroup(process);
    if (!comparable) return;
    Attempt& attempt = attempts[other.attempt()];
    bool ended_before = EndedBefore(other, process);
    if (!HasGroup(process)) {
      // A relay that comes back finds its process in its attempt all the same.
      ended_before |= other.state() == stored::STATE_DISCONNECTED &&
                      !AreSiblings(other, process);
    } else if (ended_before && (other.rank() == process.rank() ||
                                other.world() != process.world())) {
      // The place was held by a process that is gone, or the world had another
      // size: this is another start, whatever the other ranks of the attempt
      // do.
      attempt.replaced = true;
    } else {
      ended_before = EndedBeforeStartOf(process, other);
    }
    attempt.all_ended_before &= ended_before;
  });
  // A script that a process of the run has started runs beside its parent and
  // does not follow it, even if its parent has ended since.
  const bool may_follow = HasGroup(process) || !is_child;
  std::set<uint32_t> over;
  for (const auto& [number, attempt] : attempts) {
    if (attempt.replaced || (attempt.all_ended_before && may_follow)) {
      over.insert(number);
    }
  }
  return over;
}

// Does the other belong to the start that the nonce of `process` names?
bool IsOfStart(const stored::Process& other, const stored::Process& process) {
  return other.number() != process.number() && IsMain(other) &&
         other.has_rank() && other.start() == process.start();
}

// The attempts that are another start's. A process of the same start in the
// same place is of another: the ranks of two starts were given one store, with
// the nonce of the first in it. One without a nonce may still learn it.
std::set<uint32_t> TakenAttempts(const RunState& run,
                                 const stored::Process& process) {
  std::set<uint32_t> taken;
  ForEachProcess(run, [&](const stored::Process& other) {
    if (other.number() == process.number() || !IsPlaced(other) ||
        !HasGroup(other)) {
      return;
    }
    const bool another = other.start() != process.start();
    if ((another && (!other.start().empty() || EndedBefore(other, process))) ||
        other.rank() == process.rank()) {
      taken.insert(other.attempt());
    }
  });
  return taken;
}

uint32_t AttemptOfStart(const RunState& run, const stored::Process& process) {
  std::set<uint32_t> attempts;
  std::set<uint32_t> held;
  ForEachProcess(run, [&](const stored::Process& other) {
    if (!IsOfStart(other, process)) return;
    attempts.insert(other.attempt());
    if (other.rank() == process.rank()) held.insert(other.attempt());
  });
  // The start's own attempt, unless this place is held there: then two starts
  // have one nonce, and this is the second one.
  for (const uint32_t attempt : attempts) {
    if (held.count(attempt) == 0) return attempt;
  }
  // This is the first rank of its start, or a second start with the nonce of
  // another. The search ends, since an attempt that nobody is in is not taken.
  const std::set<uint32_t> taken = TakenAttempts(run, process);
  uint32_t attempt = process.announced_attempt();
  while (taken.contains(attempt)) ++attempt;
  return attempt;
}

}  // namespace

// The nonce decides where there is one; the ends that the daemon has seen
// decide otherwise (attempts.h).
uint32_t FittingAttempt(const RunState& run, const stored::Process& process) {
  if (HasGroup(process) && !process.start().empty()) {
    return AttemptOfStart(run, process);
  }
  const std::set<uint32_t> over = AttemptsThatAreOver(run, process);
  uint32_t attempt = process.attempt();
  // Comes to an end: an attempt that nobody is in is not over.
  while (over.contains(attempt)) ++attempt;
  return attempt;
}

Starts NewestStarts(const RunState& run) {
  Starts starts;
  const auto raise = [](uint32_t attempt, uint32_t* newest) {
    *newest = std::max(*newest, attempt);
  };
  ForEachProcess(run, [&](const stored::Process& process) {
    raise(process.attempt(), &starts.last_attempt);
    if (!IsPlaced(process)) return;
    raise(process.attempt(), &starts.by_rank[process.rank()]);
    raise(process.attempt(), &starts.by_world[process.world()]);
  });
  return starts;
}

bool IsSuperseded(const RunState& run, const Starts& newest,
                  const stored::Process& process) {
  // A later program of the process itself.
  if (!run.IsLatestImage(process)) return true;
  if (!IsMain(process)) {
    // Workers of loaders hold no place that a later start could take: they go
    // with the rank that made them.
    const ProcessEntry* owner = run.OwnerOf(process);
    return owner != nullptr && owner->books.number() != process.number() &&
           owner->books.state() == stored::STATE_SUPERSEDED;
  }
  if (!IsPlaced(process)) return false;
  const auto of_rank = newest.by_rank.find(process.rank());
  if (of_rank != newest.by_rank.end() && of_rank->second > process.attempt()) {
    return true;
  }
  // A later start with another number of ranks replaces all of the earlier
  // ones, also those whose rank it does not have.
  return std::any_of(newest.by_world.begin(), newest.by_world.end(),
                     [&](const auto& start) {
                       return start.first != process.world() &&
                              start.second > process.attempt();
                     });
}

bool IsChildOf(const stored::Process& process, const stored::Process& parent) {
  // A pid is given again: a parent is older than its child.
  return process.parent_pid() != 0 && process.parent_pid() == parent.pid() &&
         OnOneMachine(process, parent) &&
         process.start_ticks() >= parent.start_ticks();
}

bool SamePlace(const stored::Process& a, const stored::Process& b) {
  return a.kind() == b.kind() && a.has_rank() == b.has_rank() &&
         a.rank() == b.rank() && a.world() == b.world() &&
         a.start() == b.start();
}

}  // namespace traincheck::server
