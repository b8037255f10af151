#include "invariants/rules/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class BlameTest : public testing::Test {
 protected:
  // Sites are numbered from 1 in the order in which they come.
  void CallAt(const std::string& site) {
    trace_.Begin(next_, {.site = site});
    trace_.End();
  }
  void Lose() {
    trace_.Lose();
    CallAt("train.py:90");  // which shows that records are missing
  }
  void Say(uint32_t object, const char* name, double value) {
    trace_.Scalar(StatePoint::kFetch, object, 0, name, value);
  }
  Finding Blame(const char* fact, FactSubject subject) {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    subject.facts = &facts_;
    Finding finding;
    finding.sites = {"train.py:90"};
    AddBlame(*FindFact(fact), subject, &finding);
    return finding;
  }

  TraceBuilder trace_;
  ProcessFacts facts_{0};
  const uint32_t next_ = trace_.Function("next", "loader_next", {});
  const uint32_t backward_ = trace_.Function("Tensor.backward", "backward", {});
  const uint32_t loader_ =
      trace_.Object("DataLoader", {.kind = ObjectKind::kLoader});
  const uint32_t optimizer_ =
      trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
};

TEST_F(BlameTest, ALoaderIsBlamedWhereItWasMade) {
  CallAt("train.py:1");
  CallAt("train.py:8");
  Say(loader_, "loader.made.site", 2);
  const Finding finding = Blame("loader.writes_data", {.loader = loader_});
  EXPECT_THAT(finding.evidence,
              ElementsAre("the loader was made at train.py:8"));
  EXPECT_THAT(finding.sites, ElementsAre("train.py:8", "train.py:90"));
  EXPECT_THAT(Blame("sampler.shuffles", {.loader = loader_}).sites,
              ElementsAre("train.py:8", "train.py:90"));
  // The loop over it makes this mistake.
  EXPECT_THAT(Blame("loader.begins_again", {.loader = loader_}).evidence,
              IsEmpty());
  EXPECT_THAT(Blame("loader.writes_data", {}).evidence, IsEmpty());
  // The line does not change where records are missing.
  Lose();
  EXPECT_THAT(Blame("loader.writes_data", {.loader = loader_}).sites,
              ElementsAre("train.py:8", "train.py:90"));
}

TEST_F(BlameTest, ASchedulerIsBlamedWhereItWasMadeOrIsStepped) {
  CallAt("train.py:5");
  CallAt("train.py:7");
  Say(optimizer_, "schedule.rises_again.site", 1);
  Say(optimizer_, "schedule.early.site", 2);
  const FactSubject subject = {.optimizer = optimizer_};
  EXPECT_THAT(Blame("schedule.rises_again", subject).evidence,
              ElementsAre("the scheduler was made at train.py:5"));
  EXPECT_THAT(Blame("schedule.early", subject).evidence,
              ElementsAre("the scheduler is stepped at train.py:7"));
  EXPECT_THAT(Blame("schedule.unused", subject).evidence, IsEmpty());
  Lose();
  EXPECT_THAT(Blame("schedule.early", subject).evidence, IsEmpty());
}

TEST_F(BlameTest, ALossIsBlamedWhereTheAgentSays) {
  CallAt("train.py:3");
  trace_.Begin(backward_, {.site = "train.py:4"});
  Say(0, "loss.normalised_twice", 1);
  Say(0, "loss.normalised_twice.site", 1);
  trace_.End();
  const Finding finding = Blame("loss.normalised_twice", {});
  EXPECT_THAT(finding.evidence, ElementsAre("it stands at train.py:3"));
  EXPECT_THAT(finding.sites, ElementsAre("train.py:3", "train.py:90"));
  EXPECT_THAT(Blame("loss.no_logarithms", {}).sites,
              ElementsAre("train.py:90"));
  // What is said holds for one backward.
  trace_.Begin(backward_, {.site = "train.py:4"});
  trace_.End();
  EXPECT_THAT(Blame("loss.normalised_twice", {}).evidence, IsEmpty());
}

TEST_F(BlameTest, ANumberThatNoLineHasIsLeftOut) {
  Say(loader_, "loader.made.site", 1e30);
  EXPECT_THAT(Blame("loader.writes_data", {.loader = loader_}).sites,
              ElementsAre("train.py:90"));
  Say(loader_, "loader.made.site", 77);
  EXPECT_THAT(Blame("loader.writes_data", {.loader = loader_}).sites,
              ElementsAre("train.py:90"));
}

}  // namespace
}  // namespace traincheck
