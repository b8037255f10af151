// One step of one process in both runs, while it is compared.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COMPARE_STEP_PAIR_H_
#define TRAINCHECK_CHECKER_COMPARE_STEP_PAIR_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "checker/compare/comparison_coverage.h"
#include "checker/compare/difference.h"
#include "checker/compare/names.h"
#include "checker/compare/step_content.h"
#include "checker/compare/told_values.h"

namespace traincheck {

struct StepPair {
  const StepContent& a;
  const StepContent& b;
  const Names& names;
  DefinitionsOfBoth definitions;
  DifferenceList* differences;
  ComparisonCoverage* coverage;

  // Was everything recorded in both?
  bool both_whole() const { return a.whole && b.whole; }
};

// Where something lies in both runs; null in the one that lacks it.
struct MomentOfBoth {
  const Moment* a = nullptr;
  const Moment* b = nullptr;
};

// What a difference says, but for its step and place.
inline Difference DifferenceAt(const StepPair& pair, const MomentOfBoth& at,
                               std::string what, std::string a, std::string b) {
  Difference difference;
  difference.what = std::move(what);
  difference.a = std::move(a);
  difference.b = std::move(b);
  if (at.a) difference.site_a = pair.definitions.a.Site(at.a->site);
  if (at.b) difference.site_b = pair.definitions.b.Site(at.b->site);
  return difference;
}

// In the order of run A. What run B alone has lies where its records would.
inline PlaceInStep PlaceOf(StepRung rung, const MomentOfBoth& at) {
  const Moment& moment = at.a ? *at.a : *at.b;
  return {moment.phase, rung, static_cast<double>(moment.position)};
}

// The items of both runs that have the same key, in order; visit(of_a, of_b)
// with vectors of pointers, for each key.
template <typename Item, typename Key, typename Visit>
void ForEachKey(const std::vector<Item>& a, const std::vector<Item>& b, Key key,
                Visit visit) {
  const auto sorted = [&](const std::vector<Item>& items) {
    std::vector<const Item*> result;
    result.reserve(items.size());
    for (const Item& item : items) result.push_back(&item);
    std::stable_sort(
        result.begin(), result.end(),
        [&](const Item* x, const Item* y) { return key(*x) < key(*y); });
    return result;
  };
  const std::vector<const Item*> in_a = sorted(a);
  const std::vector<const Item*> in_b = sorted(b);
  size_t at_a = 0;
  size_t at_b = 0;
  std::vector<const Item*> of_a;
  std::vector<const Item*> of_b;
  while (at_a < in_a.size() || at_b < in_b.size()) {
    const auto first = [&] {
      if (at_a == in_a.size()) return key(*in_b[at_b]);
      if (at_b == in_b.size()) return key(*in_a[at_a]);
      return std::min(key(*in_a[at_a]), key(*in_b[at_b]));
    }();
    of_a.clear();
    of_b.clear();
    while (at_a < in_a.size() && key(*in_a[at_a]) == first) {
      of_a.push_back(in_a[at_a++]);
    }
    while (at_b < in_b.size() && key(*in_b[at_b]) == first) {
      of_b.push_back(in_b[at_b++]);
    }
    visit(of_a, of_b);
  }
}

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_STEP_PAIR_H_
