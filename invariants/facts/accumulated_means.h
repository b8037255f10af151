// Fact "step.means_alike": were the losses that a step accumulated means over
// equally many targets?
//
// Inputs: scalars "loss.targets" that the agent writes of backwards at which it
// looked; ends of steps, clears.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_ACCUMULATED_MEANS_H_
#define TRAINCHECK_INVARIANTS_FACTS_ACCUMULATED_MEANS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "invariants/facts/fact_tracker.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class AccumulatedMeans final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override {
    // A check of the user's before the training leaves gradients, too.
    if (HasCategory(call, CallCategory::kZeroGrad)) Forget();
    if (!HasCategory(call, CallCategory::kBackward)) return;
    if (call.Is(kOutermost)) ++backwards_;
  }
  void OnScalar(const ScalarEvent& event) override {
    if (event.object != 0 || *event.name != kTargets) return;
    ++counts_;
    least_ = std::min(least_, event.value);
    most_ = std::max(most_, event.value);
  }
  void AfterCall(const Call& call, CallOutcome outcome) override {
    if (IsOptimizerStep(call)) Forget();
  }
  void OnGap() override { unsure_ = true; }

  // Of several backwards since the last step or clear, each of the mean over
  // some targets: were these about equally many? nullopt: there were no such
  // backwards.
  std::optional<bool> Alike() const {
    if (unsure_ || backwards_ < 2 || counts_ != backwards_) {
      return std::nullopt;
    }
    return most_ <= kAlike * least_;
  }

  void Fields(Archive& archive) override {
    archive(counts_, least_, most_, backwards_, unsure_);
  }

 private:
  void Forget() {
    counts_ = backwards_ = 0;
    least_ = std::numeric_limits<double>::infinity();
    most_ = -least_;
    unsure_ = false;
  }

  static constexpr char kTargets[] = "loss.targets";
  // Rows of packed texts differ by a few targets, which weigh nothing.
  static constexpr double kAlike = 1.1;

  // Since the last step or clear, which a loop that steps by hand never has:
  // how many counts of targets, and which.
  uint64_t counts_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
  double most_ = -std::numeric_limits<double>::infinity();
  uint64_t backwards_ = 0;  // likewise
  bool unsure_ = false;     // records of some may be missing
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_ACCUMULATED_MEANS_H_
