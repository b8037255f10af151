#include "server/store/keys.h"

#include <gtest/gtest.h>

namespace traincheck::server {
namespace {

TEST(Keys, BatchKeyIsTheDocumentedOne) {
  const std::string key = BatchKey({3, 1, 5});
  EXPECT_EQ(key, std::string("\0\0\0\0\0\0\0\3\0\0\0\1\0\0\0\0\0\0\0\5", 20));
}

TEST(Keys, BatchKeysSortByRunProcessAndNumber) {
  EXPECT_LT(BatchKey({1, 2, 255}), BatchKey({1, 2, 256}));
  EXPECT_LT(BatchKey({1, 2, UINT64_MAX}), BatchKey({1, 3, 0}));
  EXPECT_LT(BatchKey({1, UINT32_MAX, 0}), BatchKey({2, 0, 0}));
}

TEST(Keys, ParseGivesBackWhatWasBuiltAndRefusesTheRest) {
  BatchId id;
  ASSERT_TRUE(ParseBatchKey(BatchKey({1ull << 40, 1u << 30, 77}), &id));
  EXPECT_EQ(id.run, 1ull << 40);
  EXPECT_EQ(id.process, 1u << 30);
  EXPECT_EQ(id.batch, 77u);
  EXPECT_FALSE(ParseBatchKey("short", &id));
}

TEST(Keys, TheKeyOfAProcessSaysItsRun) {
  uint64_t run = 0;
  ASSERT_TRUE(ParseProcessKey(ProcessKey(1ull << 40, 3), &run));
  EXPECT_EQ(run, 1ull << 40);
  EXPECT_FALSE(ParseProcessKey(RunKey(7), &run));
}

TEST(Keys, PrefixEndIsBehindAllKeysWithThePrefix) {
  EXPECT_EQ(PrefixEnd("a"), "b");
  EXPECT_EQ(PrefixEnd("a\xff"), "b");
  EXPECT_LT("a\xff\xff", PrefixEnd("a"));
}

TEST(Keys, WhatPeopleSayOfViolationsSortsByRun) {
  EXPECT_EQ(MarkKey(1, "v"), std::string("mark/\0\0\0\0\0\0\0\1v", 14));
  EXPECT_LT(MarkKey(1, "\xff"), MarkKey(2, ""));
  EXPECT_LT(AlertCallKey(1, "\xff"), AlertCallKey(2, ""));
}

TEST(Keys, SetsWhoseNamesBeginAlikeDoNotMix) {
  EXPECT_LT(SetKey("a", UINT32_MAX), SetKey("a-b", 1));
  EXPECT_LT(SetKey("a", 1), SetKey("a", 2));
}

}  // namespace
}  // namespace traincheck::server
