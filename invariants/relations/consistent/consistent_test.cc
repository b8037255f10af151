// What is kept of attempts that have ended.
#include "invariants/relations/consistent/consistent.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "invariants/relations/consistent/update_comparison.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

constexpr int32_t kRanks = 50;

std::vector<int32_t> FirstRanks(int32_t count) {
  std::vector<int32_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class NoSink : public RuleSink {
 public:
  void OnVerdict(const Verdict& verdict) override {}
};

TEST(Consistent, LetsGoOfUpdatesOfAttemptsThatEnded) {
  NoSink sink;
  UpdateComparison comparison(&sink);
  for (uint32_t attempt = 0; attempt < 3; ++attempt) {
    ProcessFacts facts(attempt);
    facts.SetAttempt(attempt);
    TraceBuilder trace;
    trace.Place(0, 2);
    for (const StoredBatch& batch : trace.TakeBatches()) facts.Consume(batch);
    UpdateWindow window;
    window.ranks = {0, 1};
    comparison.Add(facts, 0, window);
    EXPECT_EQ(comparison.units(), 1u);
    for (int32_t rank : {1, 0}) comparison.GiveUpRank(attempt, rank, "ended");
    EXPECT_EQ(comparison.units(), 0u);
    // What comes all the same is not looked at.
    window.index = 1;
    comparison.Add(facts, 0, window);
    EXPECT_EQ(comparison.units(), 0u);
  }
}

// Of many groups that split a model.
size_t StateAfter(uint32_t attempts) {
  const auto rule = Consistent()->Parse(
      {{"across", "ranks"}, {"of", "inputs"}, {"is", "distinct"}}, "");
  EXPECT_TRUE(rule.ok()) << rule.status();
  if (!rule.ok()) return 0;
  NoSink sink;
  const auto evaluator =
      (*rule)->relation().NewEvaluator({{0, *rule, Precondition()}}, &sink);
  for (uint32_t attempt = 0; attempt < attempts; ++attempt) {
    ProcessFacts facts(attempt);
    facts.SetAttempt(attempt);
    const auto observer = evaluator->AddProcess(facts);
    facts.AddObserver(observer.get());
    TraceBuilder trace;
    trace.Place(0, kRanks);
    const uint32_t net = trace.Object("Net", {});
    const uint32_t ddp = trace.Object("DDP", {.wrapped = net});
    const uint32_t weight = trace.Variable(net, "Net", "w", {});
    const uint32_t inputs =
        trace.Variable(ddp, "DDP", "inputs", {.kind = VariableKind::kInputs});
    trace.Replicas(1, ddp, FirstRanks(kRanks), {weight});
    for (int32_t size = 10; size < kRanks; ++size) {
      trace.ProcessGroup(static_cast<uint32_t>(size), FirstRanks(size));
    }
    trace.State(StatePoint::kForwardBegin, inputs, {.data = 5});
    for (const StoredBatch& batch : trace.TakeBatches()) facts.Consume(batch);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      evaluator->GiveUpRank(attempt, rank, "ended");
    }
  }
  Archive archive;
  evaluator->Fields(archive);
  return archive.TakeBytes().size();
}

TEST(Consistent, LetsGoOfGroupsOfAttemptsThatEnded) {
  // The end of each rank is kept.
  EXPECT_LT(StateAfter(5) - StateAfter(1), 4u * 4u * kRanks);
}

}  // namespace
}  // namespace traincheck
