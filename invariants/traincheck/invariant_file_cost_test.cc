// What reading a file costs, where many lines are one rule.
//
// This program's operator new counts what is allocated, as a measure of the
// work that depends on no clock.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "invariants/traincheck/invariant_file.h"

namespace traincheck {
namespace {

size_t allocated = 0;  // bytes, also those that were given back

}  // namespace
}  // namespace traincheck

void* operator new(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  traincheck::allocated += size;
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace traincheck {
namespace {

std::string Line(const std::string& description) {
  return R"({"text_description": ")" + description +
         R"(", "relation": "APIContainRelation", "params": [)"
         R"({"param_type": "APIParam", "api_full_name": "torch.a"}, )"
         R"({"param_type": "APIParam", "api_full_name": "torch.b"}], )"
         R"("precondition": {"parent_func_call_pre": {"inverted": false, )"
         R"("preconditions": [{"clauses": "Unconditional"}]}}})"
         "\n";
}

// Bytes for so many lines of one rule, with that many descriptions.
size_t CostOf(int lines, int descriptions) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += Line(std::to_string(i % descriptions));
  }
  const size_t before = allocated;
  const auto rules = RulesFromFileUntrusted(text, {});
  const size_t cost = allocated - before;
  EXPECT_TRUE(rules.ok()) << rules.status();
  if (rules.ok()) EXPECT_EQ(rules->size(), 1u);
  return cost;
}

TEST(InvariantFileCost, GrowsWithTheLinesOfARule) {
  EXPECT_LT(CostOf(3200, 1), 20 * CostOf(200, 1));
}

TEST(InvariantFileCost, GrowsWithTheLinesThatSaySomethingElseBesideIt) {
  EXPECT_LT(CostOf(3200, 3200), 20 * CostOf(200, 200));
}

}  // namespace
}  // namespace traincheck
