#include "invariants/facts/ownership.h"

#include <gtest/gtest.h>

#include "invariants/facts/definitions_for_testing.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

class OwnershipTest : public testing::Test {
 protected:
  void Define() {
    DefineForTesting(&trace_, &definitions_, &ownership_,
                     [](RecordType type, uint32_t id) {});
  }
  uint32_t Optimizer() {
    return trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  }

  TraceBuilder trace_;
  ProcessDefinitions definitions_;
  Ownership ownership_{&definitions_};
};

TEST_F(OwnershipTest, OptimizersAreCountedAsTheyAreMade) {
  const uint32_t net = trace_.Object("Net", {});
  const uint32_t idle = Optimizer();  // holds nothing, and counts
  const uint32_t first = Optimizer();
  const uint32_t second = Optimizer();
  const uint32_t a = trace_.Variable(net, "Net", "a", {});
  const uint32_t b = trace_.Variable(net, "Net", "b", {});
  const uint32_t free = trace_.Variable(net, "Net", "free", {});
  trace_.Hold(second, 0, {b});
  trace_.Hold(first, 0, {a});
  trace_.Hold(first, 1, {b});
  Define();
  EXPECT_EQ(ownership_.Find(idle), nullptr);
  EXPECT_EQ(ownership_.Find(first)->ordinal, 1u);
  EXPECT_EQ(ownership_.Find(second)->ordinal, 2u);
  EXPECT_EQ(ownership_.HoldersOf(a), std::vector<uint32_t>{first});
  EXPECT_EQ(ownership_.HoldersOf(b), (std::vector<uint32_t>{first, second}));
  EXPECT_TRUE(ownership_.HoldersOf(free).empty());
}

TEST_F(OwnershipTest, EachOptimizerHasTheWrappersOfItsModels) {
  const uint32_t nets[] = {trace_.Object("Net", {}),
                           trace_.Object("Other", {})};
  std::vector<uint32_t> wrappers;
  for (const uint32_t net : {nets[0], nets[0], nets[1]}) {
    wrappers.push_back(trace_.Object("Wrapper", {.wrapped = net}));
  }
  const uint32_t first = Optimizer();
  const uint32_t second = Optimizer();
  trace_.Hold(first, 0, {trace_.Variable(nets[0], "Net", "w", {})});
  trace_.Hold(second, 0, {trace_.Variable(nets[1], "Other", "w", {})});
  Define();
  EXPECT_EQ(ownership_.Find(first)->wrappers,
            (std::set<uint32_t>{wrappers[0], wrappers[1]}));
  EXPECT_EQ(ownership_.Find(first)->modules,
            (std::set<uint32_t>{nets[0], wrappers[0], wrappers[1]}));
  EXPECT_EQ(ownership_.Find(second)->wrappers, std::set<uint32_t>{wrappers[2]});
}

}  // namespace
}  // namespace traincheck
