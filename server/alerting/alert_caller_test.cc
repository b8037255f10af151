#include "server/alerting/alert_caller.h"

#include <gtest/gtest.h>

#include "server/feedback/shown_violations_for_testing.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

class AlertCallerTest : public ShownViolationsTest {
 protected:
  void Start(uint32_t per_hour) {
    caller_ = *AlertCaller::Load({.store = store_.get(),
                                  .registry = registry_.get(),
                                  .board = board_.get(),
                                  .violations = violations_.get()},
                                 {.command = "true", .per_hour = per_hour});
    caller_->Start();
  }
  ~AlertCallerTest() override { caller_->Stop(); }
  bool IsStarted(uint32_t times) {
    return ComesTrue([&] { return caller_->Calls().started() == times; });
  }

  std::unique_ptr<AlertCaller> caller_;
};

TEST_F(AlertCallerTest, WhatTheDiskTakesLateIsCalledForOnceItIsThere) {
  Begin("a");
  Start(1);
  store_->RefuseNext(1);
  Post("a", "1");
  EXPECT_TRUE(IsStarted(1));
  EXPECT_EQ(store_->still_to_refuse(), 0);
  EXPECT_EQ(caller_->Calls().held_back(), 0u);
  // It counts once for the hour, and a call that is held back may be late, too.
  store_->RefuseNext(1);
  Post("a", "2");
  EXPECT_TRUE(ComesTrue([&] { return caller_->Calls().held_back() == 1; }));
  EXPECT_EQ(store_->still_to_refuse(), 0);
  EXPECT_EQ(caller_->Calls().started(), 1u);
}

TEST_F(AlertCallerTest, ARunWhoseCallsCannotBeReadKeepsNobodyFromTheOthers) {
  const uint64_t damaged = Begin("a");
  Begin("b");
  Start(10);
  Put(Table::kMeta, AlertCallKey(damaged, "0"), "\xff");
  Post("a", "1");
  Post("b", "2");
  EXPECT_TRUE(IsStarted(1));
}

TEST_F(AlertCallerTest, ARunWhoseMarksCannotBeReadKeepsNobodyFromTheOthers) {
  Put(Table::kMeta, MarkKey(Begin("a"), "1"), "\xff");
  Begin("b");
  Start(10);
  Post("a", "1");
  Post("b", "2");
  EXPECT_TRUE(IsStarted(1));
}

}  // namespace
}  // namespace traincheck::server
