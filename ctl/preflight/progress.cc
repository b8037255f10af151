#include "ctl/preflight/progress.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"

namespace traincheck::ctl {
namespace {

using std::chrono::seconds;

constexpr seconds kBetweenLooks{1};
constexpr seconds kEndsAfterRanks{10};
// `finally` blocks and exit functions may save a model.
constexpr seconds kEndsAfterSteps{60};
constexpr seconds kDiesWithin{10};

bool Trains(const v1::Process& process) {
  return process.identity().kind() == v1::PROCESS_KIND_MAIN;
}

// Lost means ended here as well: nobody waits for a process that is gone.
bool Ended(const v1::Process& process) {
  return process.state() == v1::PROCESS_STATE_ENDED ||
         process.state() == v1::PROCESS_STATE_LOST;
}

bool Reached(const v1::Process& process, uint64_t steps) {
  // Steps count from 0.
  return process.has_last_step() && process.last_step() + 1 >= steps;
}

constexpr int64_t kNoRank = -1;

struct AttemptProgress {
  uint64_t world = 0;         // 0: not known
  std::set<int64_t> reached;  // ranks
};

}  // namespace

// Processes that did not get there count as missing, unless another process of
// the attempt has their place. What ranks reached in two attempts does not add
// up: each may have ended for the lack of another one.
bool AllReached(const v1::Run& run, uint64_t steps) {
  std::map<uint32_t, AttemptProgress> attempts;
  for (const v1::Process& process : run.processes()) {
    if (!Trains(process)) continue;
    AttemptProgress& attempt = attempts[process.attempt()];
    attempt.world = std::max<uint64_t>(
        attempt.world, process.has_world() ? process.world() : run.world());
    if (Reached(process, steps)) {
      // Those without a place among the ranks count as one.
      attempt.reached.insert(process.has_rank() ? process.rank() : kNoRank);
    } else if (!Ended(process)) {
      return false;
    }
  }
  // A training without a process group has no world. Ranks that have not come
  // yet count as missing. An earlier attempt counts as well: what a launcher
  // starts after one that was through was not asked for.
  return absl::c_any_of(attempts, [](const auto& entry) {
    const AttemptProgress& attempt = entry.second;
    return attempt.reached.size() >= std::max<uint64_t>(attempt.world, 1);
  });
}

bool AnyEndedThere(const v1::Run& run, uint64_t steps) {
  return absl::c_any_of(run.processes(), [&](const v1::Process& process) {
    return Trains(process) && Ended(process) && Reached(process, steps);
  });
}

StopOverseer::StopOverseer(uint64_t steps, Dependencies dependencies)
    : steps_(steps), dependencies_(std::move(dependencies)) {}

void StopOverseer::Look(Time now) {
  const absl::StatusOr<v1::Run> run = dependencies_.get_run();
  // Without an answer nothing is known of the ranks, and no training is ended
  // for that.
  if (!run.ok() || !AllReached(*run, steps_)) return;
  // The first time counts: a launcher that starts its ranks again must not move
  // it.
  if (!reached_) reached_ = now;
  const bool all_ended =
      absl::c_all_of(run->processes(), [](const v1::Process& process) {
        return !Trains(process) || Ended(process);
      });
  // Once is enough: what a launcher starts next was not asked for.
  if (all_ended && !ended_) ended_ = now;
}

int StopOverseer::SignalDue() {
  const Time now = dependencies_.now();
  // After SIGTERM the ranks are asked about no more. A launcher that catches
  // the signal gets SIGKILL, once.
  if (terminated_at_) {
    if (killed_at_ || now < *terminated_at_ + kDiesWithin) return 0;
    killed_at_ = now;
    return SIGKILL;
  }
  if (now >= next_look_) {
    next_look_ = now + kBetweenLooks;
    Look(now);
  }
  // Two clocks: a launcher without ranks has nothing left to do, while ranks
  // that are through may still save something.
  const bool is_due = (ended_ && now >= *ended_ + kEndsAfterRanks) ||
                      (reached_ && now >= *reached_ + kEndsAfterSteps);
  if (!is_due) return 0;
  terminated_at_ = now;
  return SIGTERM;
}

}  // namespace traincheck::ctl
