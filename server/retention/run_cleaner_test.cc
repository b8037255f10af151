#include "server/retention/run_cleaner.h"

#include <gtest/gtest.h>

#include "server/runs/registry_for_testing.h"
#include "server/store/forwarding_store_for_testing.h"
#include "server/store/memory_store_for_testing.h"

namespace traincheck::server {
namespace {

// A disk that takes nothing for now: writes wait, deletions go ahead of them.
class StandingStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  absl::Status WriteAndWait(WriteSet writes, absl::Duration) override {
    Write(std::move(writes), nullptr);
    return absl::UnavailableError("no space left on device");
  }
};

class RunCleanerTest : public testing::Test {
 protected:
  RunCleanerTest() { Load(); }

  void Load() {
    registry_ = *Registry::Load(&store_, {});
    board_ = *ViolationBoard::Load(&store_);
    checks_ = std::make_unique<LiveChecks>(
        LiveChecks::Dependencies{.store = &store_,
                                 .registry = registry_.get(),
                                 .sets = &sets_,
                                 .board = board_.get()});
  }

  // Of the store below.
  MemoryStore* const memory_ = new MemoryStore;
  StandingStore store_{std::unique_ptr<Store>(memory_)};
  SetCatalog sets_{&store_};
  RunPins pins_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<LiveChecks> checks_;
};

TEST_F(RunCleanerTest, WhatIsQueuedBringsNoDeletedRunBack) {
  const auto opened = registry_->Open(MakeHello(1), nullptr);
  ASSERT_TRUE(opened.ok()) << opened.status();
  memory_->Sync();
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_CLEAN);
  // The disk is full from here on: that the run has ended is queued.
  ASSERT_TRUE(registry_->End(opened->stream, goodbye, nullptr).ok());
  RunCleaner cleaner({.store = &store_,
                      .registry = registry_.get(),
                      .checks = checks_.get(),
                      .board = board_.get(),
                      .sets = &sets_,
                      .pins = &pins_});
  const auto deleted = cleaner.Delete("run");
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  // Somebody has made room, and the daemon starts anew.
  memory_->Sync();
  Load();
  EXPECT_TRUE(registry_->RunIds().empty());
  EXPECT_EQ(memory_->Count(Table::kRuns), 0u);
}

}  // namespace
}  // namespace traincheck::server
