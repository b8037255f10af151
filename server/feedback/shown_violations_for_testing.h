// Violations of runs as those see them who act on them, on a store that refuses
// writes if the test wants it.
//
// Threads: one test, and the thread of what it tests.
#ifndef TRAINCHECK_SERVER_FEEDBACK_SHOWN_VIOLATIONS_FOR_TESTING_H_
#define TRAINCHECK_SERVER_FEEDBACK_SHOWN_VIOLATIONS_FOR_TESTING_H_

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "server/checking/violation_board.h"
#include "server/feedback/marks.h"
#include "server/feedback/rule_places.h"
#include "server/feedback/silences.h"
#include "server/feedback/violation_view.h"
#include "server/runs/registry.h"
#include "server/runs/registry_for_testing.h"
#include "server/sets/set_catalog.h"
#include "server/store/forwarding_store_for_testing.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {

class RefusingStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  // Who waits for the next `writes` gives up. They stay queued, as a disk that
  // goes on leaves them.
  void RefuseNext(int writes) { refuse_ = writes; }
  int still_to_refuse() const { return refuse_; }
  uint64_t reads() const { return reads_; }

  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const override {
    ++reads_;
    return ForwardingStore::Get(table, key);
  }

  absl::Status WriteAndWait(WriteSet writes, absl::Duration patience) override {
    if (refuse_ > 0) {
      --refuse_;
      Write(std::move(writes), nullptr);
      return absl::UnavailableError("the disk is full");
    }
    return ForwardingStore::WriteAndWait(std::move(writes), patience);
  }

 private:
  std::atomic<int> refuse_ = 0;
  mutable std::atomic<uint64_t> reads_ = 0;
};

class ShownViolationsTest : public testing::Test {
 protected:
  ShownViolationsTest() {
    const std::string dir =
        testing::TempDir() + "/shown-" +
        testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir);
    store_ = std::make_unique<RefusingStore>(*OpenRocksdbStore(dir));
    board_ = *ViolationBoard::Load(store_.get());
    registry_ = *Registry::Load(store_.get(), {});
    sets_ = std::make_unique<SetCatalog>(store_.get());
    marks_ = std::make_unique<Marks>(store_.get());
    silences_ = *Silences::Load(store_.get(), sets_.get());
    places_ = std::make_unique<RulePlaces>(sets_.get());
    violations_ = std::make_unique<ViolationView>(
        ViolationView::Dependencies{.registry = registry_.get(),
                                    .board = board_.get(),
                                    .marks = marks_.get(),
                                    .silences = silences_.get(),
                                    .places = places_.get()});
  }
  ~ShownViolationsTest() override { store_->Close(); }

  // Its number.
  uint64_t Begin(const std::string& run, const std::string& owner = "") {
    v1::Hello hello = MakeHello(1);
    hello.set_run(run);
    EXPECT_TRUE(registry_->Open(hello, nullptr, owner).ok());
    return registry_->NumberOf(run).value_or(0);
  }
  // An alert of its own about a variable.
  void Post(const std::string& run, const std::string& id) {
    Violation violation;
    violation.id = id;
    violation.run = run;
    violation.count = 1;
    violation.variables = {"head.weight"};
    violation.grouped.incident = id;
    violation.grouped.alerts = true;
    board_->Post(registry_->NumberOf(run).value_or(0), {violation});
  }
  void Put(Table table, const std::string& key, const std::string& value) {
    WriteSet writes;
    writes.Put(table, key, value);
    ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  }
  static bool ComesTrue(const std::function<bool()>& condition) {
    for (int i = 0; i < 3000 && !condition(); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return condition();
  }

  std::unique_ptr<RefusingStore> store_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<Marks> marks_;
  std::unique_ptr<Silences> silences_;
  std::unique_ptr<RulePlaces> places_;
  std::unique_ptr<ViolationView> violations_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_SHOWN_VIOLATIONS_FOR_TESTING_H_
