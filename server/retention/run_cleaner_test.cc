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

class RunCleanerTest : public RegistryTest {
 protected:
  RunCleanerTest() {
    Close();
    store_ = std::make_unique<StandingStore>(std::unique_ptr<Store>(memory_));
    LoadFromMemory();
  }

  void LoadFromMemory() {
    registry_ = *Registry::Load(store_.get(), {.now = [this] { return now_; }});
    board_ = *ViolationBoard::Load(store_.get());
    sets_ = std::make_unique<SetCatalog>(store_.get());
    checks_ = std::make_unique<LiveChecks>(
        LiveChecks::Dependencies{.store = store_.get(),
                                 .registry = registry_.get(),
                                 .sets = sets_.get(),
                                 .board = board_.get()});
  }

  // Of the store.
  MemoryStore* const memory_ = new MemoryStore;
  RunPins pins_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<LiveChecks> checks_;
};

TEST_F(RunCleanerTest, WhatIsQueuedBringsNoDeletedRunBack) {
  const StreamId stream = Open(1);
  AddPlace(stream, 0, 1);
  End(stream, v1::END_KIND_CLEAN);
  memory_->Sync();
  // The disk is full from here on: that the run is kept is queued.
  ASSERT_TRUE(registry_->Keep("run", true).ok());
  RunCleaner cleaner({.store = store_.get(),
                      .registry = registry_.get(),
                      .checks = checks_.get(),
                      .board = board_.get(),
                      .sets = sets_.get(),
                      .pins = &pins_});
  const auto deleted = cleaner.Delete("run");
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  // Somebody has made room, and the daemon starts anew.
  memory_->Sync();
  LoadFromMemory();
  EXPECT_TRUE(registry_->RunIds().empty());
  EXPECT_EQ(memory_->Count(Table::kRuns), 0u);
}

}  // namespace
}  // namespace traincheck::server
