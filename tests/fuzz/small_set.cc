#include "tests/fuzz/small_set.h"

#include <set>
#include <string>
#include <utility>

#include "tests/engine/engine_harness.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {
namespace {

// What two rules may differ in and still run through the same code: the names
// of functions and variables.
std::string Shape(const Invariant& invariant) {
  std::string shape = invariant.rule->relation_name();
  const nlohmann::json flat = invariant.rule->parameters().flatten();
  for (const auto& [path, value] : flat.items()) {
    for (const char* key : {"kind", "across", "of", "is", "which", "binding"}) {
      if (path.ends_with(std::string("/") + key)) shape += value.dump();
    }
  }
  return shape;
}

}  // namespace

const InvariantSet& SmallSet() {
  static const auto* const kSet = [] {
    auto* set = new InvariantSet;
    set->name = "set";
    std::set<std::string> shapes;
    for (Invariant& invariant : Learn(TwoReferences()).invariants) {
      if (!shapes.insert(Shape(invariant)).second) continue;
      invariant.scope = Scope::kGeneral;
      set->invariants.push_back(std::move(invariant));
    }
    Require(set->invariants.size() > 5);
    return set;
  }();
  return *kSet;
}

}  // namespace traincheck
