#include "checker/compare/call_comparison.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "checker/compare/value_words.h"
#include "invariants/rules/skeleton_calls.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {
namespace {

using Calls = std::vector<const RecordedCall*>;

struct CategoryRungs {
  StepRung call;
  StepRung result;
};

// Where calls of a category stand, and what they return.
CategoryRungs RungsOf(const std::string& category) {
  using enum StepRung;
  static const auto* const kRungs =
      new std::map<std::string, CategoryRungs, std::less<>>{
          {"optimizer_init", {kSetup, kResult}},
          {"wrap", {kSetup, kResult}},
          {"initialiser", {kSetup, kResult}},
          {"setting", {kSetup, kResult}},
          {"train_mode", {kMode, kResult}},
          {"random", {kMode, kMode}},
          {"loader_iter", {kData, kData}},
          {"loader_next", {kData, kData}},
          {"fetch", {kData, kData}},
          {"data", {kData, kData}},
          {"collective", {kCollective, kCollective}},
          {"clip_grad", {kCall, kGradient}},
          {"optimizer_step", {kCall, kUpdate}},
          {"save", {kCheckpoint, kCheckpoint}},
          {"state_dict", {kCheckpoint, kCheckpoint}},
      };
  const auto found = kRungs->find(category);
  return found == kRungs->end() ? CategoryRungs{kCall, kResult} : found->second;
}

// Are all calls of the function in this step recorded?
bool Records(const StepContent& step, const RecordedCall& call) {
  // The skeleton is recorded in every mode; beyond it the absence of a call
  // says something only if the process has said that it records the function.
  const std::string& category = call.call.function->category.text();
  if (IsOfSkeleton(category)) return true;
  return step.whole && step.functions != nullptr &&
         step.functions->count(call.function) > 0;
}

// Only of calls that ended (ComparePair).
std::string OutcomeWords(const RecordedCall& call) {
  return call.outcome == CallOutcome::kRaised ? "raised" : "returned";
}

// Calls are compared in three passes: those of one callee by ordinal, which
// also tells which calls of both runs are the same (aligned_); then those that
// one run lacks, whose place is found among the aligned ones; then the order of
// the aligned ones.
class CallComparison {
 public:
  explicit CallComparison(const StepPair& pair) : pair_(pair) {}

  void Run() {
    ForEachKey(
        pair_.a.calls, pair_.b.calls,
        [](const RecordedCall& call) { return call.callee; },
        [&](const Calls& a, const Calls& b) { CompareCallee(a, b); });
    // PositionInA searches by position in B.
    std::sort(aligned_.begin(), aligned_.end());
    for (const Lone& lone : lone_) AddLone(lone);
    CompareOrder();
  }

 private:
  struct Aligned {
    uint32_t in_b = 0;  // positions
    uint32_t in_a = 0;
    const RecordedCall* a = nullptr;
    const RecordedCall* b = nullptr;

    bool operator<(const Aligned& other) const { return in_b < other.in_b; }
  };
  // A call that one run makes and the other does not.
  struct Lone {
    const RecordedCall* call = nullptr;
    size_t calls_a = 0;
    size_t calls_b = 0;
    size_t ordinal = 0;
    bool in_a = false;
  };

  void CompareCallee(const Calls& a, const Calls& b) {
    const RecordedCall& any = a.empty() ? *b[0] : *a[0];
    const bool recorded = Records(pair_.a, any) && Records(pair_.b, any);
    // Equal numbers need no word of the plans: nothing is missing. Else calls
    // that one run lacks are a difference only where both record the function;
    // in a step of which one has the skeleton alone, the count of such steps
    // says that they are missing.
    if (a.size() == b.size()) {
      for (size_t i = 0; i < a.size(); ++i) ComparePair(*a[i], *b[i]);
    } else if (recorded) {
      CompareUnequal(a, b);
    } else if (pair_.both_whole()) {
      pair_.coverage->Miss(
          "calls of functions", a.size() > b.size() ? kInAOnly : kInBOnly,
          std::max(a.size(), b.size()), pair_.names.Text(any.function));
    }
  }

  // Some calls are missing in one run: what is alike before and behind them is
  // compared.
  void CompareUnequal(const Calls& a, const Calls& b) {
    const size_t both = std::min(a.size(), b.size());
    size_t before = 0;
    // Greedy, and enough: one call that is missing leaves a common beginning
    // and a common end. The end is looked for in what the beginning has left,
    // so that no call is taken twice. What lies between cannot be attributed,
    // and is not compared.
    while (before < both && Alike(*a[before], *b[before])) ++before;
    size_t behind = 0;
    while (behind < both - before &&
           Alike(*a[a.size() - 1 - behind], *b[b.size() - 1 - behind])) {
      ++behind;
    }
    for (size_t i = 0; i < before; ++i) ComparePair(*a[i], *b[i]);
    for (size_t i = behind; i > 0; --i) {
      ComparePair(*a[a.size() - i], *b[b.size() - i]);
    }
    const bool in_a = a.size() > b.size();
    // One difference, however many calls are missing: its words have both
    // numbers.
    lone_.push_back({(in_a ? a : b)[before], a.size(), b.size(), before, in_a});
  }

  bool Alike(const RecordedCall& a, const RecordedCall& b) const {
    return a.call.flags == b.call.flags &&
           !CompareArguments(a.call, b.call, pair_.definitions).first &&
           !CompareResults(a.call, b.call, pair_.definitions).first;
  }

  void Add(StepRung rung, const MomentOfBoth& at, const std::string& what,
           const std::string& a, const std::string& b) {
    pair_.differences->Add(PlaceOf(rung, at),
                           [&] { return DifferenceAt(pair_, at, what, a, b); });
  }

  void ComparePair(const RecordedCall& a, const RecordedCall& b) {
    ++pair_.coverage->calls;
    aligned_.push_back({b.at.position, a.at.position, &a, &b});
    const MomentOfBoth at = {&a.at, &b.at};
    CompareModes(a, b, at);
    const CategoryRungs rungs = RungsOf(a.call.function->category.text());
    // A call in which a step closed, or whose end was not recorded, has no
    // outcome here.
    const bool ended = a.outcome != CallOutcome::kUnknown &&
                       b.outcome != CallOutcome::kUnknown;
    if (ended && a.outcome != b.outcome) {
      Add(rungs.result, at, "how the call of " + Callee(a) + " ends",
          OutcomeWords(a), OutcomeWords(b));
    }
    // Calls of the skeleton have neither arguments nor results in steps that
    // are not sampled.
    if (!pair_.both_whole()) return;
    CompareTold(a, b, at, rungs);
    // Whether a result has a graph is known only where both agents have looked
    // for one.
    if (!ended || !(a.output & b.output & kOutputSearched)) return;
    const bool graph_a = (a.output & kOutputHasGradFn) != 0;
    const bool graph_b = (b.output & kOutputHasGradFn) != 0;
    if (graph_a == graph_b) return;
    const auto words = [](bool graph) {
      return graph ? "has a grad_fn" : "has no grad_fn";
    };
    Add(rungs.result, at, "what " + Callee(a) + " returns", words(graph_a),
        words(graph_b));
  }

  void CompareModes(const RecordedCall& a, const RecordedCall& b,
                    const MomentOfBoth& at) {
    const bool of_module =
        HasCategory(a.call, CallCategory::kForward) && a.call.object != 0;
    if (of_module && a.call.Is(kModuleTraining) != b.call.Is(kModuleTraining)) {
      const auto words = [](const RecordedCall& call) {
        return call.call.Is(kModuleTraining) ? "training" : "evaluation";
      };
      Add(StepRung::kMode, at, "the mode of the module in " + Callee(a),
          words(a), words(b));
    }
    if (a.call.Is(kGradEnabled) != b.call.Is(kGradEnabled)) {
      const auto words = [](const RecordedCall& call) {
        return call.call.Is(kGradEnabled) ? "enabled" : "disabled";
      };
      Add(StepRung::kMode, at, "gradients at the call of " + Callee(a),
          words(a), words(b));
    }
  }

  void CompareTold(const RecordedCall& a, const RecordedCall& b,
                   const MomentOfBoth& at, const CategoryRungs& rungs) {
    const ToldComparison arguments =
        CompareArguments(a.call, b.call, pair_.definitions);
    pair_.coverage->arguments += arguments.compared;
    if (arguments.first) {
      Add(rungs.call, at,
          "the argument " + arguments.first->name + " of " + Callee(a),
          arguments.first->a, arguments.first->b);
    }
    const ToldComparison results =
        CompareResults(a.call, b.call, pair_.definitions);
    pair_.coverage->results += results.compared;
    if (results.first) {
      Add(rungs.result, at, "what " + Callee(a) + " returns", results.first->a,
          results.first->b);
    }
  }

  // Where in A's order what lies at this position of B would lie. Halves lie
  // between two records of A.
  double PositionInA(uint32_t in_b) const {
    const auto behind =
        std::upper_bound(aligned_.begin(), aligned_.end(), Aligned{in_b});
    if (behind == aligned_.begin()) return -0.5;
    return std::prev(behind)->in_a + 0.5;
  }

  void AddLone(const Lone& lone) {
    const Moment& moment = lone.call->at;
    const MomentOfBoth at = {lone.in_a ? &moment : nullptr,
                             lone.in_a ? nullptr : &moment};
    const StepRung rung =
        RungsOf(lone.call->call.function->category.text()).call;
    PlaceInStep place = PlaceOf(rung, at);
    // Differences are ordered by A's positions, and this call has none in A.
    if (!lone.in_a) place.position = PositionInA(moment.position);
    const bool both = lone.calls_a > 0 && lone.calls_b > 0;
    const auto words = [&](bool makes_it, size_t calls) {
      if (calls == 0) return std::string("not called");
      std::string text = calls == 1
                             ? "called once"
                             : "called " + std::to_string(calls) + " times";
      if (!makes_it || !both) return text;
      return text + ", of which call " + std::to_string(lone.ordinal + 1) +
             " is made here alone";
    };
    pair_.differences->Add(place, [&] {
      return DifferenceAt(pair_, at, "the calls of " + Callee(*lone.call),
                          words(lone.in_a, lone.calls_a),
                          words(!lone.in_a, lone.calls_b));
    });
  }

  // Only calls of the thread that steps the optimizers have an order that
  // counts: calls of other threads come in between as these threads are
  // scheduled.
  void CompareOrder() {
    // In a step without an optimizer's step no thread is known to be the one
    // that trains.
    if (pair_.a.ring == 0 || pair_.b.ring == 0) return;
    std::vector<Aligned> in_order;
    for (const Aligned& one : aligned_) {
      if (one.a->call.ring == pair_.a.ring &&
          one.b->call.ring == pair_.b.ring) {
        in_order.push_back(one);
      }
    }
    std::sort(
        in_order.begin(), in_order.end(),
        [](const Aligned& x, const Aligned& y) { return x.in_a < y.in_a; });
    for (size_t i = 1; i < in_order.size(); ++i) {
      const Aligned& first = in_order[i - 1];
      const Aligned& then = in_order[i];
      // In A's order, the first neighbours that B has the other way round. One
      // is enough: each that follows may be due to it.
      if (first.in_b < then.in_b) continue;
      const MomentOfBoth at = {&first.a->at, &then.b->at};
      Add(StepRung::kCall, at, "the order of calls",
          Callee(*first.a) + " before " + Callee(*then.a),
          Callee(*then.a) + " before " + Callee(*first.a));
      return;
    }
  }

  const std::string& Callee(const RecordedCall& call) const {
    return pair_.names.Text(call.callee);
  }

  const StepPair& pair_;
  std::vector<Aligned> aligned_;
  std::vector<Lone> lone_;
};

}  // namespace

void CompareCalls(const StepPair& pair) { CallComparison(pair).Run(); }

}  // namespace traincheck
