#include "agent/relay/plan_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace traincheck::agent {
namespace {

v1::PlanChange Change(uint64_t version, const std::string& plan) {
  v1::PlanChange change;
  change.set_version(version);
  change.set_from_step(7);
  change.set_plan(plan);
  return change;
}

std::string TextOf(const HeldPlan& plan) {
  std::string text(plan.message.bytes, '?');
  EXPECT_EQ(pread(plan.file.get(), text.data(), text.size(), 0),
            static_cast<ssize_t>(text.size()));
  return text;
}

TEST(PlanTable, KeepsTheNewestOfEachRun) {
  PlanTable table;
  EXPECT_EQ(table.Find("a"), nullptr);
  ASSERT_TRUE(table.Put("a", Change(2, "two")).ok());
  ASSERT_TRUE(table.Put("a", Change(1, "one")).ok());
  ASSERT_TRUE(table.Put("b", Change(1, "other")).ok());
  EXPECT_EQ(TextOf(*table.Find("a")), "two");
  EXPECT_EQ(table.Find("a")->message.from_step, 7u);
  EXPECT_EQ(TextOf(*table.Find("b")), "other");
  ASSERT_TRUE(table.Put("a", Change(3, "three")).ok());
  EXPECT_EQ(TextOf(*table.Find("a")), "three");
}

TEST(PlanTable, NobodyCanChangeTheFile) {
  PlanTable table;
  ASSERT_TRUE(table.Put("a", Change(1, "plan")).ok());
  const int file = table.Find("a")->file.get();
  EXPECT_EQ(pwrite(file, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(file, 0), -1);
  EXPECT_EQ(ftruncate(file, 100), -1);
}

TEST(PlanTable, WhatNoProcessTakesIsRefusedAndTheOldOneStays) {
  PlanTable table;
  ASSERT_TRUE(table.Put("a", Change(1, "plan")).ok());
  for (const std::string& bad :
       {std::string(), std::string(kMaxPlanBytes + 1, 'x')}) {
    EXPECT_EQ(table.Put("a", Change(2, bad)).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(table.Find("a")->message.version, 1u);
}

TEST(PlanTable, AProcessThatDoesNotReadHoldsUpNobody) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  PlanTable table;
  ASSERT_TRUE(table.Put("a", Change(1, "plan")).ok());
  const HeldPlan& plan = *table.Find("a");
  int sent = 0;
  while (sent < 100'000 && SendPlan(ends[0], plan)) ++sent;
  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, 100'000);
  // Once it reads there is room again.
  char bytes[64];
  for (int i = 0; i < sent; ++i) {
    ASSERT_EQ(recv(ends[1], bytes, sizeof bytes, 0),
              static_cast<ssize_t>(sizeof(PlanMessage)));
  }
  EXPECT_TRUE(SendPlan(ends[0], plan));
  // One that is gone is done with.
  close(ends[1]);
  EXPECT_TRUE(SendPlan(ends[0], plan));
  close(ends[0]);
}

}  // namespace
}  // namespace traincheck::agent
