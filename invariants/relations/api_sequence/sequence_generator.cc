#include "invariants/relations/api_sequence/sequence_generator.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "invariants/relations/api_sequence/sequence_spec.h"
#include "invariants/rules/hypothesis_set.h"
#include "invariants/rules/step_windows.h"

namespace traincheck {

namespace {

constexpr char kTransitive[] = "two orders make a third";

// In how many windows a station was first called before another one.
class Orders {
 public:
  // The stations of one window in the order of their first calls.
  void Add(const std::vector<FunctionMatch>& window) {
    for (size_t a = 0; a < window.size(); ++a) {
      ++windows_[window[a]];
      for (size_t b = a + 1; b < window.size(); ++b) {
        ++before_[{window[a], window[b]}];
      }
    }
  }

  // Of the experiment: what others call in another order need not be wrong
  // (an optimizer that takes a closure steps before the forward).
  void Collect(HypothesisSet* out) const {
    for (const auto& [pair, windows] : before_) {
      // Both orders were seen, so neither is a rule.
      if (Before(pair.second, pair.first) > 0) continue;
      Hypothesis hypothesis{
          ParametersOf(pair.first, pair.second), Scope::kExperiment, {}};
      AddWays(pair.first, pair.second, &hypothesis);
      out->Add(std::move(hypothesis));
    }
  }

 private:
  using Pair = std::pair<FunctionMatch, FunctionMatch>;

  uint64_t Before(const FunctionMatch& a, const FunctionMatch& b) const {
    const auto found = before_.find({a, b});
    return found == before_.end() ? 0 : found->second;
  }

  static nlohmann::json ParametersOf(const FunctionMatch& a,
                                     const FunctionMatch& b) {
    return SequenceSpec{SequenceWindow::kStep, {a, b}}.ToJson();
  }

  // Names the pairs that make this one superfluous: over each station that lies
  // between the two whenever both are called. Without them a loop of ten
  // stations would ship 45 rules instead of nine.
  void AddWays(const FunctionMatch& a, const FunctionMatch& c,
               Hypothesis* hypothesis) const {
    // Windows in which both are called: a Before c was always the order, or the
    // pair would not be a hypothesis.
    const uint64_t both = Before(a, c);
    for (const auto& [b, windows] : windows_) {
      // Then the orders of a and b and of b and c say all that this one does,
      // in every window that it could be broken in.
      const bool between = Before(a, b) >= both && Before(b, c) >= both &&
                           Before(b, a) == 0 && Before(c, b) == 0;
      if (!between || b == a || b == c) continue;
      hypothesis->broader.push_back(
          {ParametersOf(a, b), kTransitive, ParametersOf(b, c)});
    }
  }

  std::map<FunctionMatch, uint64_t> windows_;
  std::map<Pair, uint64_t> before_;
};

// Steps only: in which order a run sets things up says nothing, because it does
// so once.
class FirstCallsSeen : public ProcessObserver {
 public:
  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    Advance(facts);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    Advance(facts);
    const auto station = StationOf(call);
    if (!station) return;
    // Where in a step a program evaluates is its own affair.
    if (HasCategory(call, CallCategory::kTrainMode)) return;
    AddFirst(*station, &in_step_[call.ring]);
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    orders_.Collect(out);
  }

 private:
  // Threads run beside each other: only calls of one thread have an order.
  using Windows = std::map<uint32_t, std::vector<FunctionMatch>>;  // by ring

  static void AddFirst(const FunctionMatch& station,
                       std::vector<FunctionMatch>* window) {
    // A rule has no room for more, and pairs grow with the square.
    if (window->size() == kMostStations) return;
    if (std::find(window->begin(), window->end(), station) == window->end()) {
      window->push_back(station);
    }
  }

  void Advance(const ProcessFacts& facts) {
    if (!steps_.Advance(facts)) return;
    if (steps_.closed().whole) {
      for (const auto& [ring, window] : in_step_) orders_.Add(window);
    }
    in_step_.clear();
  }

  StepWindows steps_;
  Windows in_step_;
  Orders orders_;
};

}  // namespace

std::unique_ptr<Generator> NewSequenceGenerator() {
  return std::make_unique<SeenGenerator<FirstCallsSeen>>();
}

}  // namespace traincheck
