#include "server/feedback/rule_review.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/feedback/shown_violations_for_testing.h"

namespace traincheck::server {
namespace {

class RuleReviewTest : public ShownViolationsTest {
 protected:
  RuleReviewTest()
      : checks_({.store = store_.get(),
                 .registry = registry_.get(),
                 .sets = sets_.get(),
                 .board = board_.get()}),
        policy_(*RulePolicy::Load(store_.get(), sets_.get())),
        review_({.store = store_.get(),
                 .registry = registry_.get(),
                 .checks = &checks_,
                 .violations = violations_.get(),
                 .sets = sets_.get(),
                 .policy = policy_.get()}) {}
  // The policy must not go before the store is closed.
  ~RuleReviewTest() override { store_->Close(); }

  void BeginRuns(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) Begin(absl::StrCat("run-", i), "ada");
  }
  // What the store is asked for by one review.
  uint64_t ReadsOfReview() {
    const uint64_t before = store_->reads();
    const auto broken = review_.BrokenInHealthyRuns("ada");
    EXPECT_TRUE(broken.ok()) << broken.status();
    return store_->reads() - before;
  }

  LiveChecks checks_;
  std::unique_ptr<RulePolicy> policy_;
  RuleReview review_;
};

TEST_F(RuleReviewTest, AMarkWaitsForNoMoreThanTheNewestRuns) {
  BeginRuns(0, kMaxRunsOfRecord / 2);
  const uint64_t of_half = ReadsOfReview();
  EXPECT_GT(of_half, 0u);
  BeginRuns(kMaxRunsOfRecord / 2, kMaxRunsOfRecord);
  const uint64_t of_all = ReadsOfReview();
  EXPECT_GT(of_all, of_half);
  BeginRuns(kMaxRunsOfRecord, kMaxRunsOfRecord + 50);
  EXPECT_EQ(ReadsOfReview(), of_all);
}

TEST_F(RuleReviewTest, ADaemonThatStopsWaitsForNoReview) {
  BeginRuns(0, 1);
  review_.Stop();
  EXPECT_TRUE(absl::IsCancelled(review_.BrokenInHealthyRuns("ada").status()));
  EXPECT_TRUE(absl::IsCancelled(review_.Review("").status()));
}

}  // namespace
}  // namespace traincheck::server
