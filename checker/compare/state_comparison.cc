#include "checker/compare/state_comparison.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checker/compare/value_words.h"

namespace traincheck {
namespace {

using States = std::vector<const RecordedState*>;

// What people mean by weights, counted apart from optimizer state and inputs.
bool IsOfModel(VariableKind kind) {
  return kind == VariableKind::kParameter || kind == VariableKind::kBuffer;
}

const char* KindWords(VariableKind kind) {
  switch (kind) {
    case VariableKind::kParameter:
    case VariableKind::kBuffer:
      return "weights";
    case VariableKind::kOptimizerState:
      return "states of optimizers";
    case VariableKind::kGenerator:
      return "random generators";
    case VariableKind::kLoaderState:
    case VariableKind::kInputs:
      return "batches";
    case VariableKind::kUnknown:
      return "variables";
  }
  return "variables";
}

bool Has(const RecordedState& state, StateContent bit) {
  return (state.content & bit) != 0;
}

// None is a content, too: it says that there is no gradient.
bool ShowsGradient(const RecordedState& state) {
  return Has(state, kHasGrad) || Has(state, kGradIsNone);
}

// A digest says to people only whether two contents are equal; zeros have a
// word of their own.
std::string DataWords(const RecordedState& state) {
  return Has(state, kDataIsZero) ? "all zero" : DigestWords(state.data);
}

std::string GradientWords(const RecordedState& state) {
  if (Has(state, kGradIsNone)) return "None";
  return Has(state, kGradIsZero) ? "all zero" : DigestWords(state.grad);
}

// Compares the states of one step, key by key. Within one key (variable and
// point) the first state of one run belongs to the first of the other, and so
// on.
class StateComparison {
 public:
  StateComparison(const StepPair& pair, GeneratorBook* generators)
      : pair_(pair), generators_(generators) {}

  VariableCounts Run() {
    ForEachKey(
        pair_.a.states, pair_.b.states,
        [](const RecordedState& state) {
          return std::pair(state.variable, state.point);
        },
        [&](const States& a, const States& b) { CompareVariable(a, b); });
    VariableCounts counts;
    for (const auto& [variable, last] : last_) {
      ++counts.compared;
      if (last.different) ++counts.different;
    }
    return counts;
  }

 private:
  struct Last {
    uint32_t position = 0;
    bool different = false;
  };

  void CompareVariable(const States& a, const States& b) {
    const size_t both = std::min(a.size(), b.size());
    for (size_t i = 0; i < both; ++i) ComparePair(*a[i], *b[i]);
    // Unlike a call, a state that one run lacks is not a difference of the
    // trainings: whether it is recorded is up to the agents. It counts as not
    // compared.
    if (a.size() == b.size() || !pair_.both_whole()) return;
    const RecordedState& any = a.size() > b.size() ? *a[0] : *b[0];
    pair_.coverage->Miss(KindWords(any.kind),
                         a.size() > b.size() ? kInAOnly : kInBOnly,
                         std::max(a.size(), b.size()) - both, What(any));
  }

  // One state in both runs: whether a gradient is required, the data, the
  // gradient. What only one run has recorded is unknown.
  void ComparePair(const RecordedState& a, const RecordedState& b) {
    const MomentOfBoth at = {&a.at, &b.at};
    if (IsOfModel(a.kind) && Has(a, kRequiresGrad) != Has(b, kRequiresGrad)) {
      const auto words = [](const RecordedState& state) {
        return Has(state, kRequiresGrad) ? "yes" : "no";
      };
      Add(StepRung::kSetup, at,
          "whether " + Name(a) + " requires a gradient" + PointWords(a.point),
          words(a), words(b));
    }
    // Behind requires_grad, which is a flag of the record itself and known
    // without the content.
    if (Has(a, kUnreadable) || Has(b, kUnreadable)) {
      pair_.coverage->Miss(KindWords(a.kind),
                           "could not be read, or it was not their turn", 1,
                           Name(a));
      return;
    }
    CompareData(a, b, at);
    CompareGradient(a, b, at);
  }

  void CompareData(const RecordedState& a, const RecordedState& b,
                   const MomentOfBoth& at) {
    if (!Has(a, kHasData) && !Has(b, kHasData)) return;
    if (!Has(a, kHasData) || !Has(b, kHasData)) {
      return Miss(KindWords(a.kind), Has(a, kHasData), a);
    }
    const bool different = a.data != b.data;
    if (a.kind == VariableKind::kGenerator && generators_ != nullptr &&
        !generators_->Counts(a.variable, different)) {
      pair_.coverage->Miss(KindWords(a.kind),
                           "differ from the start: they were not "
                           "seeded alike",
                           1, Name(a));
      return;
    }
    ++CountOf(a.kind);
    if (IsOfModel(a.kind)) Note(a, different);
    if (!different) return;
    PlaceInStep place = PlaceOf(RungOfState(a.kind, a.point, true), at);
    // What the step began with explains everything in it, though it was
    // recorded behind the backward. With one optimizer step between, in one of
    // the runs, it is an update.
    if (a.is_as_begun && b.is_as_begun) {
      place.rung = StepRung::kWeights;
      place.phase = 0;
    }
    pair_.differences->Add(place, [&] {
      return DifferenceAt(pair_, at, What(a), DataWords(a), DataWords(b));
    });
  }

  void CompareGradient(const RecordedState& a, const RecordedState& b,
                       const MomentOfBoth& at) {
    if (!ShowsGradient(a) && !ShowsGradient(b)) return;
    if (!ShowsGradient(a) || !ShowsGradient(b)) {
      return Miss("gradients", ShowsGradient(a), a);
    }
    ++pair_.coverage->gradients;
    // None is another state than zeros: an optimizer leaves a parameter without
    // a gradient out, while one with zeros decays and moves by its momentum.
    const bool same = Has(a, kGradIsNone) == Has(b, kGradIsNone) &&
                      (Has(a, kGradIsNone) || a.grad == b.grad);
    if (same) return;
    Add(RungOfState(a.kind, a.point, false), at,
        "the gradient of " + Name(a) + PointWords(a.point), GradientWords(a),
        GradientWords(b));
  }

  void Miss(const std::string& what, bool in_a, const RecordedState& state) {
    pair_.coverage->Miss(what, in_a ? kInAOnly : kInBOnly, 1, What(state));
  }

  // The last one of the step counts.
  void Note(const RecordedState& a, bool different) {
    const auto [at, is_new] = last_.try_emplace(a.variable);
    if (!is_new && at->second.position > a.at.position) return;
    at->second = {a.at.position, different};
  }

  uint64_t& CountOf(VariableKind kind) {
    switch (kind) {
      case VariableKind::kOptimizerState:
        return pair_.coverage->optimizer_states;
      case VariableKind::kGenerator:
        return pair_.coverage->generators;
      case VariableKind::kLoaderState:
      case VariableKind::kInputs:
        return pair_.coverage->batches;
      default:
        return pair_.coverage->weights;
    }
  }

  void Add(StepRung rung, const MomentOfBoth& at, const std::string& what,
           const std::string& a, const std::string& b) {
    pair_.differences->Add(PlaceOf(rung, at),
                           [&] { return DifferenceAt(pair_, at, what, a, b); });
  }

  const std::string& Name(const RecordedState& state) const {
    return pair_.names.Text(state.variable);
  }
  std::string What(const RecordedState& state) const {
    return Name(state) + PointWords(state.point);
  }

  const StepPair& pair_;
  GeneratorBook* const generators_;
  std::map<NameId, Last> last_;  // of parameters and buffers
};

}  // namespace

VariableCounts CompareStates(const StepPair& pair, GeneratorBook* generators) {
  return StateComparison(pair, generators).Run();
}

}  // namespace traincheck
