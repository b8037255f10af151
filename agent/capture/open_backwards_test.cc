#include "agent/capture/open_backwards.h"

#include <gtest/gtest.h>

namespace traincheck::agent {
namespace {

class OpenBackwardsTest : public testing::Test {
 protected:
  void Begin(uint32_t ring, bool backward = false) {
    OpenCall call = {};
    call.number = ++last_;
    open_.push_back(call);
    if (backward) backwards_.push_back({ring, call.number});
  }
  void End(uint32_t ring, size_t depth, uint64_t call) {
    CloseBackwards(ring, open_, depth, call, &backwards_);
    if (open_.size() > depth) open_.resize(depth);
  }

  uint64_t last_ = 0;
  std::vector<OpenCall> open_;
  std::vector<OpenBackward> backwards_;
};

TEST_F(OpenBackwardsTest, EndWithTheirCall) {
  backwards_.push_back({2, 1});  // of another thread
  Begin(1);
  Begin(1, /*backward=*/true);
  Begin(1);
  End(1, 2, 3);
  EXPECT_EQ(backwards_.size(), 2u);
  End(1, 1, 2);
  ASSERT_EQ(backwards_.size(), 1u);
  EXPECT_EQ(backwards_[0].ring, 2u);
}

// One greenlet begins a call, another one a backward, and the first call ends.
TEST_F(OpenBackwardsTest, EndWithACallBelowThem) {
  Begin(1);
  Begin(1, /*backward=*/true);
  End(1, 0, 1);
  EXPECT_TRUE(backwards_.empty());
  // The end of what was taken off says nothing of what has begun since.
  Begin(1, /*backward=*/true);
  End(1, 1, 2);
  EXPECT_EQ(backwards_.size(), 1u);
  End(1, 0, 3);
  EXPECT_TRUE(backwards_.empty());
}

TEST_F(OpenBackwardsTest, EndAlsoWhereTheyAreNotOnTheStack) {
  Begin(1);
  Begin(1, /*backward=*/true);
  open_.clear();
  End(1, 1, 2);
  EXPECT_TRUE(backwards_.empty());
}

}  // namespace
}  // namespace traincheck::agent
