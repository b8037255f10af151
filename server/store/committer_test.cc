#include "server/store/committer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace traincheck::server {
namespace {

WriteSet OneEntry(const std::string& key, size_t bytes = 1) {
  WriteSet writes;
  writes.Put(Table::kMeta, key, std::string(bytes, 'x'));
  return writes;
}

// A disk that can be told to fail or to wait, and remembers its groups.
class FakeDisk {
 public:
  absl::Status Commit(const std::vector<const WriteSet*>& sets) {
    first_commit.Notify_();
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&open));
    if (failures > 0) {
      --failures;
      return absl::UnavailableError("No space left on device");
    }
    groups.push_back(sets.size());
    for (const WriteSet* set : sets) keys += set->entries()[0].key;
    return absl::OkStatus();
  }

  struct Once {
    absl::Notification seen;
    void Notify_() {
      if (!seen.HasBeenNotified()) seen.Notify();
    }
  } first_commit;
  absl::Mutex mutex;
  bool open = true;
  int failures = 0;
  std::vector<size_t> groups;
  std::string keys;
};

class CommitterTest : public testing::Test {
 protected:
  void Make(const Committer::Options& options) {
    committer_ = std::make_unique<Committer>(
        [this](const std::vector<const WriteSet*>& sets) {
          return disk_.Commit(sets);
        },
        options);
  }

  FakeDisk disk_;
  std::unique_ptr<Committer> committer_;
};

TEST_F(CommitterTest, GroupsWhatCollectsDuringASyncAndKeepsTheOrder) {
  disk_.open = false;
  Make({});
  absl::Notification last;
  committer_->Add(OneEntry("a"), nullptr);
  disk_.first_commit.seen.WaitForNotification();
  for (const char* key : {"b", "c", "d"}) {
    committer_->Add(OneEntry(key), nullptr);
  }
  committer_->Add(OneEntry("e"), [&] { last.Notify(); });
  {
    absl::MutexLock lock(&disk_.mutex);
    disk_.open = true;
  }
  last.WaitForNotification();
  EXPECT_EQ(disk_.keys, "abcde");
  EXPECT_EQ(disk_.groups, (std::vector<size_t>{1, 4}));
}

TEST_F(CommitterTest, WhatComesOneByOneSharesASync) {
  Make({.min_interval = absl::Seconds(2)});
  absl::Notification first;
  committer_->Add(OneEntry("a"), [&] { first.Notify(); });
  // A lone write waits for nothing.
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(60)));
  absl::Notification last;
  committer_->Add(OneEntry("b"), nullptr);
  absl::SleepFor(absl::Milliseconds(20));
  committer_->Add(OneEntry("c"), [&] { last.Notify(); });
  last.WaitForNotification();
  absl::MutexLock lock(&disk_.mutex);
  EXPECT_EQ(disk_.groups, (std::vector<size_t>{1, 2}));
}

TEST_F(CommitterTest, AWholeGroupAndACloseWaitForNoInterval) {
  Make({.max_group_bytes = 10, .min_interval = absl::Hours(1)});
  absl::Notification first, second;
  committer_->Add(OneEntry("a"), [&] { first.Notify(); });
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(60)));
  committer_->Add(OneEntry("b", 10), [&] { second.Notify(); });
  ASSERT_TRUE(second.WaitForNotificationWithTimeout(absl::Seconds(60)));
  committer_->Add(OneEntry("c"), nullptr);
  committer_->Close(absl::Seconds(60));
  absl::MutexLock lock(&disk_.mutex);
  EXPECT_EQ(disk_.keys, "abc");
}

TEST_F(CommitterTest, GroupsStayBelowTheLimitUnlessOneSetIsLarger) {
  disk_.open = false;
  Make({.max_group_bytes = 100});
  absl::Notification last;
  committer_->Add(OneEntry("a"), nullptr);
  disk_.first_commit.seen.WaitForNotification();
  committer_->Add(OneEntry("b", 60), nullptr);
  committer_->Add(OneEntry("c", 60), nullptr);
  committer_->Add(OneEntry("d", 500), [&] { last.Notify(); });
  {
    absl::MutexLock lock(&disk_.mutex);
    disk_.open = true;
  }
  last.WaitForNotification();
  EXPECT_EQ(disk_.groups, (std::vector<size_t>{1, 1, 1, 1}));
}

TEST_F(CommitterTest, TriesAgainUntilTheDiskAcceptsAndOnlyThenSaysDone) {
  disk_.failures = 3;
  Make({.retry_delay = absl::Milliseconds(1)});
  absl::Notification done;
  committer_->Add(OneEntry("a"), [&] {
    EXPECT_EQ(disk_.groups.size(), 1u);
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(disk_.keys, "a");
  EXPECT_TRUE(committer_->LastError().ok());
}

TEST_F(CommitterTest, CloseGivesUpOnADiskThatRefuses) {
  disk_.failures = 1'000'000;
  Make({.retry_delay = absl::Hours(1)});
  std::atomic<bool> done = false;
  committer_->Add(OneEntry("a"), [&] { done = true; });
  disk_.first_commit.seen.WaitForNotification();
  committer_->Close(absl::Seconds(1));
  EXPECT_FALSE(done);
  EXPECT_EQ(committer_->LastError().message(), "No space left on device");
}

TEST_F(CommitterTest, CloseWorksOffTheQueue) {
  Make({});
  std::atomic<int> done = 0;
  for (int i = 0; i < 100; ++i) {
    committer_->Add(OneEntry("a"), [&] { ++done; });
  }
  committer_->Close(absl::Minutes(1));
  EXPECT_EQ(done, 100);
}

}  // namespace
}  // namespace traincheck::server
