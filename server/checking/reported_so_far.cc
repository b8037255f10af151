#include "server/checking/reported_so_far.h"

#include <algorithm>

namespace traincheck::server {
namespace {

// A check that began anew may be stopped before it is as far as the one before
// it: the furthest counts.
void Raise(uint64_t to, uint64_t* value) { *value = std::max(*value, to); }

}  // namespace

ReportedSoFar::ReportedSoFar(const stored::Check& check)
    : batches_(check.reported().begin(), check.reported().end()),
      steps_(check.reported_steps().begin(), check.reported_steps().end()),
      ended_(check.reported_ended().begin(), check.reported_ended().end()) {}

void ReportedSoFar::Store(stored::Check* check) const {
  *check->mutable_reported() = {batches_.begin(), batches_.end()};
  *check->mutable_reported_steps() = {steps_.begin(), steps_.end()};
  check->mutable_reported_ended()->Assign(ended_.begin(), ended_.end());
}

void ReportedSoFar::Add(const RunView& run, const RunCheck& check) {
  for (const auto& [process, next] : check.Cursors()) {
    Raise(next, &batches_[process]);
  }
  for (const RunView::Process& process : run.processes) {
    // Only ranks wait for each other, so only theirs are steps that windows
    // over ranks were judged up to.
    if (!HasPlace(process)) continue;
    Raise(check.checker().StepOf(process.number), &steps_[process.attempt]);
    if (check.HasEnded(process.number)) ended_.insert(process.number);
  }
}

// Windows may have been judged without a process that the earlier checks did
// not wait for. This check may know less of them until it has read that process
// beyond the step that they had reached.
bool ReportedSoFar::IsBehind(const RunView::Process& process,
                             const RunCheck& check) const {
  if (!HasPlace(process) || check.HasEnded(process.number)) return false;
  // Earlier checks had read it and not ended it: what they judged counts it in.
  const bool was_waited_for =
      batches_.count(process.number) > 0 && ended_.count(process.number) == 0;
  const auto step = steps_.find(process.attempt);
  return !was_waited_for && step != steps_.end() &&
         check.checker().StepOf(process.number) <= step->second;
}

bool ReportedSoFar::ReachedBy(const RunView& run, const RunCheck& check) const {
  const BatchCursors cursors = check.Cursors();
  for (const RunView::Process& process : run.processes) {
    if (process.refused) continue;
    if (IsBehind(process, check)) return false;
    const auto reported = batches_.find(process.number);
    if (reported == batches_.end()) continue;
    const auto cursor = cursors.find(process.number);
    const uint64_t next = cursor == cursors.end() ? 0 : cursor->second;
    // Batches that are gone since are not read again.
    if (next < std::min(reported->second, process.next_batch)) return false;
  }
  return true;
}

}  // namespace traincheck::server
