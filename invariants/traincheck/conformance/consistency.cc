#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "invariants/traincheck/conformance/line_relations.h"

namespace traincheck {

namespace {

// States that overlap by this share or less are not compared there.
constexpr double kLeastOverlap = 0.01;

// The attribute of each variable of a type.
using Attributes = std::vector<FollowedAttribute*>;

// False: a variable of this type has no such attribute, which switches the
// invariant off.
bool FindAttributes(const LineParam& param, VariableIndex* variables,
                    std::vector<TableVariable*>* found, Attributes* followed) {
  for (TableVariable& variable : variables->all()) {
    if (*variable.type != param.name) continue;
    FollowedAttribute* attribute = variable.Find(param.attribute);
    if (attribute == nullptr) return false;
    found->push_back(&variable);
    followed->push_back(attribute);
  }
  return true;
}

// Of the time from the first's begin to the last's end.
double Overlap(const AttributeState& a, const AttributeState& b) {
  if (a.from >= b.to || a.to <= b.from) return 0;
  const auto both =
      static_cast<double>(std::min(a.to, b.to) - std::max(a.from, b.from));
  const auto either =
      static_cast<double>(std::max(a.to, b.to) - std::min(a.from, b.from));
  return both / either;
}

class Comparison {
 public:
  Comparison(const LineCondition& condition, const ContextManagers& contexts)
      : condition_(condition), contexts_(contexts) {}

  bool triggered() const { return triggered_; }
  const LineFinding& finding() const { return finding_; }

  // False: they differ and must not.
  absl::StatusOr<bool> Agree(AttributeState* a, AttributeState* b) {
    // The clauses of the precondition look at one row for each state: the last
    // one that had the value.
    const std::vector<TraceRecord> records = {{a->last, &a->written},
                                              {b->last, &b->written}};
    absl::StatusOr<bool> holds = condition_.Holds(records, contexts_);
    if (!holds.ok()) return holds;
    if (!*holds) return true;
    triggered_ = true;
    if (a->value == b->value) return true;
    finding_ = LineFails(absl::StrCat("the values are ", PyValueText(a->value),
                                      " and ", PyValueText(b->value)),
                         {a->last, b->last});
    return false;
  }

  // With all states of `other` that overlap it.
  absl::StatusOr<bool> AgreeWithAll(AttributeState* state,
                                    FollowedAttribute* other) {
    // Earlier ones have ended: states follow each other.
    auto at = std::partition_point(
        other->states.begin(), other->states.end(),
        [&](const AttributeState& s) { return s.to <= state->from; });
    for (; at != other->states.end() && at->from < state->to; ++at) {
      if (Overlap(*state, *at) <= kLeastOverlap) continue;
      absl::StatusOr<bool> agree = Agree(state, &*at);
      if (!agree.ok() || !*agree) return agree;
    }
    return true;
  }

 private:
  const LineCondition& condition_;
  const ContextManagers& contexts_;
  bool triggered_ = false;
  LineFinding finding_;
};

struct PlacedState {
  AttributeState* state = nullptr;
  size_t variable = 0;
};

// By their ends, as TrainCheck compares them; then as they are found.
std::vector<PlacedState> ByEnd(const Attributes& attributes) {
  std::vector<PlacedState> placed;
  for (size_t i = 0; i < attributes.size(); ++i) {
    for (AttributeState& state : attributes[i]->states) {
      placed.push_back({&state, i});
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const PlacedState& a, const PlacedState& b) {
                     return a.state->to < b.state->to;
                   });
  return placed;
}

}  // namespace

// Compares every state of one attribute with every state of the other that it
// overlaps, over all pairs of variables of the two types.
LineResult CheckConsistency(const CheckedLine& line, ConformanceTrace* trace) {
  const LineParam& one = line.params[0];
  const LineParam& other = line.params[1];
  if (one.kind != LineParam::Kind::kVariableType ||
      other.kind != LineParam::Kind::kVariableType) {
    return absl::FailedPreconditionError(
        "a Consistency of variables by name is not implemented there");
  }
  VariableIndex& variables = trace->variables();
  std::vector<TableVariable*> ones;
  std::vector<TableVariable*> others;
  Attributes attributes;
  Attributes other_attributes;
  if (!FindAttributes(one, &variables, &ones, &attributes) ||
      !FindAttributes(other, &variables, &others, &other_attributes)) {
    return LineHolds(/*triggered=*/false);
  }
  const bool same_type = one.name == other.name;
  const bool same = same_type && one.attribute == other.attribute;
  // Two attributes of one type would be compared within one variable as well,
  // and TrainCheck stops there.
  if (same_type && !same && !ones.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("it compares ", *ones.front()->name, " with itself"));
  }
  // The order of states and variables is TrainCheck's, because the first pair
  // that differs ends the check and is what is reported.
  Comparison comparison(line.conditions.at("var"), trace->contexts());
  // The cost is states times variables, and not states times states:
  // AgreeWithAll finds those that overlap by bisection.
  for (const PlacedState& placed : ByEnd(attributes)) {
    // Each pair of variables once, and none with itself.
    const size_t first = same ? placed.variable + 1 : 0;
    for (size_t j = first; j < other_attributes.size(); ++j) {
      const absl::StatusOr<bool> agree =
          comparison.AgreeWithAll(placed.state, other_attributes[j]);
      if (!agree.ok()) return agree.status();
      if (!*agree) return comparison.finding();
    }
  }
  return LineHolds(comparison.triggered());
}

}  // namespace traincheck
