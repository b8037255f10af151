// Facts "loss.normalised_twice", "loss.no_logarithms", "loss.broadcast",
// "step.means_alike", "recompute.writes_buffers" and "recompute.redraws": how a
// loss was computed, as its graph showed before the backward, and what its
// backward computed again.
//
// Inputs: scalars that the agent writes of some backwards, without an object;
// ends of steps. A backward of which it wrote nothing gave no occasion, or was
// not looked at.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_LOSS_GRAPHS_H_
#define TRAINCHECK_INVARIANTS_FACTS_LOSS_GRAPHS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariants/facts/fact_tracker.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class LossGraphs final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override {
    if (!HasCategory(call, CallCategory::kBackward)) return;
    if (!call.Is(kOutermost)) return;
    scalars_.clear();
    ++backwards_;
  }
  void OnScalar(const ScalarEvent& event) override {
    if (event.object != 0 || event.point != StatePoint::kBackwardEnd) return;
    if (*event.name == kTargets) {
      targets_.push_back(event.value);
    } else {
      scalars_[*event.name] = event.value;
    }
  }
  void AfterCall(const Call& call, CallOutcome outcome) override {
    if (!IsOptimizerStep(call)) return;
    targets_.clear();
    backwards_ = 0;
    unsure_ = false;
  }
  void OnGap() override {
    scalars_.clear();
    unsure_ = true;
  }

  // Of the last backward; nullopt: it gave no occasion, or was not looked at.
  std::optional<bool> Find(const std::string& name) const {
    const auto found = scalars_.find(name);
    if (found == scalars_.end()) return std::nullopt;
    return found->second != 0;
  }
  // Of several backwards since the last step, each of the mean over some
  // targets: were these equally many? nullopt: there were no such backwards.
  std::optional<bool> MeansAlike() const {
    if (unsure_ || backwards_ < 2 || targets_.size() != backwards_) {
      return std::nullopt;
    }
    for (double count : targets_) {
      if (count != targets_.front()) return false;
    }
    return true;
  }

  void Fields(Archive& archive) override {
    archive(scalars_, targets_, backwards_, unsure_);
  }

 private:
  static constexpr char kTargets[] = "loss.targets";

  std::map<std::string, double> scalars_;  // of the last backward
  std::vector<double> targets_;            // since the last step
  uint64_t backwards_ = 0;                 // likewise
  bool unsure_ = false;                    // records of some may be missing
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_LOSS_GRAPHS_H_
