#include "invariants/relations/call_count/count_generator.h"

#include <map>
#include <utility>
#include <vector>

#include "invariants/relations/call_count/count_spec.h"
#include "invariants/rules/hypothesis_set.h"
#include "invariants/rules/step_windows.h"

namespace traincheck {

namespace {

// How many windows had which count, as long as the counts are few.
class Histogram {
 public:
  void Add(uint64_t count, uint64_t windows = 1) {
    if (many_) return;
    windows_[count] += windows;
    // Too many counts make no rule: that there were many is all that is kept.
    many_ = windows_.size() > kMostCounts;
    if (many_) windows_.clear();
  }
  // `all` windows were looked at. Those that were not added are windows in
  // which the function was not called, because Add is called only where it was.
  std::set<uint64_t> Counts(uint64_t all) const {
    std::set<uint64_t> counts;
    uint64_t added = 0;
    for (const auto& [count, windows] : windows_) {
      counts.insert(count);
      added += windows;
    }
    if (!counts.empty() && added < all) counts.insert(0);
    return counts;
  }

 private:
  std::map<uint64_t, uint64_t> windows_;
  bool many_ = false;
};

// An open call and what it has called directly.
struct CallWithChildren {
  uint64_t number = 0;
  uint32_t function = 0;
  bool is_module = false;
  std::map<uint32_t, uint64_t> children;  // calls by function
};

struct Parent {
  uint64_t calls = 0;
  std::map<uint32_t, Histogram> children;
};

class CallCountsSeen : public ProcessObserver {
 public:
  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    Advance(facts);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    Advance(facts);
    std::vector<CallWithChildren>& open = open_[call.ring];
    // Only calls of the training loop itself. A call that the backward's engine
    // makes on its own thread has no open call there, but a parent on the
    // loop's thread.
    if (open.empty() && call.parent_number == 0) ++in_step_[call.function_id];
    // Direct calls only: what a child calls in its turn is a count of the
    // child.
    if (!open.empty() && open.back().is_module) {
      ++open.back().children[call.function_id];
    }
    open.push_back({call.number,
                    call.function_id,
                    HasCategory(call, CallCategory::kForward),
                    {}});
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    std::vector<CallWithChildren>& open = open_[call.ring];
    if (open.empty() || open.back().number != call.number) return;
    const CallWithChildren ended = std::move(open.back());
    open.pop_back();
    // A call that an exception cut short has made fewer calls than it would.
    if (!ended.is_module || outcome != CallOutcome::kReturned) return;
    Parent& parent = parents_[ended.function];
    ++parent.calls;
    for (const auto& [child, calls] : ended.children) {
      parent.children[child].Add(calls);
    }
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [function, histogram] : per_step_) {
      const std::set<uint64_t> counts = histogram.Counts(steps_seen_);
      // One count, or one and none.
      const bool few =
          counts.size() == 1 || (counts.size() == 2 && *counts.begin() == 0);
      const FunctionMatch match{Level::kName, NameOf(definitions, function)};
      if (few) Add({match, counts, CountPer::kStep, {}}, out);
    }
    for (const auto& [window, parent] : parents_) {
      for (const auto& [child, histogram] : parent.children) {
        // A module that does not always call the child has the count 0 beside
        // others, and makes no rule.
        const std::set<uint64_t> counts = histogram.Counts(parent.calls);
        if (counts.size() != 1 || *counts.begin() < 2) continue;
        Add({{Level::kName, NameOf(definitions, child)},
             counts,
             CountPer::kCall,
             {Level::kName, NameOf(definitions, window)}},
            out);
      }
    }
  }

 private:
  void Advance(const ProcessFacts& facts) {
    if (!steps_.Advance(facts)) return;
    // The first step has the set-up in it, and the open one at the end is cut
    // off: their counts are like those of no other.
    if (steps_.closed().whole) {
      ++steps_seen_;
      for (const auto& [function, calls] : in_step_) {
        per_step_[function].Add(calls);
      }
    }
    in_step_.clear();
  }

  // "" where it is not known.
  static std::string NameOf(const ProcessDefinitions& definitions,
                            uint32_t function) {
    const FunctionInfo* info = definitions.Function(function);
    return info ? info->name : "";
  }

  static void Add(CountSpec spec, HypothesisSet* out) {
    const bool named =
        !spec.function.text.empty() &&
        (spec.per != CountPer::kCall || !spec.window.text.empty());
    if (named) out->Add({spec.ToJson(), Scope::kExperiment, {}});
  }

  StepWindows steps_;
  uint64_t steps_seen_ = 0;
  std::map<uint32_t, uint64_t> in_step_;                    // calls by function
  std::map<uint32_t, Histogram> per_step_;                  // by function
  std::map<uint32_t, std::vector<CallWithChildren>> open_;  // by ring
  std::map<uint32_t, Parent> parents_;                      // by function
};

}  // namespace

std::unique_ptr<Generator> NewCountGenerator() {
  return std::make_unique<SeenGenerator<CallCountsSeen>>();
}

}  // namespace traincheck
