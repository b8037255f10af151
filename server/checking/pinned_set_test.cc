#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "server/checking/live_check.h"
#include "server/checking/live_checks.h"
#include "server/ingest/test_batches.h"
#include "server/sets/rule_policy.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

// Which version of its set a run is checked against, if others come after it
// has begun.
class PinnedSetTest : public testing::Test {
 protected:
  PinnedSetTest()
      : dir_(testing::TempDir() + "/pinned-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    Load();
  }
  ~PinnedSetTest() override { Close(); }

  void Load() {
    store_ = *OpenRocksdbStore(dir_);
    registry_ = *Registry::Load(store_.get(), {});
    board_ = *ViolationBoard::Load(store_.get());
    sets_ = std::make_unique<SetCatalog>(store_.get());
    policy_ = *RulePolicy::Load(store_.get(), sets_.get());
    registry_->SetSelector([this](const std::string& experiment,
                                  const std::string& owner,
                                  const std::string& asked) {
      return policy_->SelectionFor(experiment, owner, asked);
    });
  }
  void Close() {
    if (checks_ != nullptr) checks_->Stop();
    store_->Close();
    checks_.reset();
    policy_.reset();
    sets_.reset();
    board_.reset();
    store_.reset();
    registry_.reset();
  }
  void StartChecks() {
    checks_ = std::make_unique<LiveChecks>(
        LiveChecks::Dependencies{.store = store_.get(),
                                 .registry = registry_.get(),
                                 .sets = sets_.get(),
                                 .board = board_.get()});
    registry_->SetObserver(
        [this](const std::string& run) { checks_->Wake(run); });
    checks_->Start();
  }

  void SaveSet(const std::string& name) {
    InvariantSet set;
    set.name = name;
    ASSERT_TRUE(sets_->Save(set).ok());
  }
  StreamId Open(const std::string& run, const std::string& check_set) {
    v1::Hello hello = MakeHello(run, 1);
    hello.set_role(v1::RUN_ROLE_TARGET);
    hello.set_check_set(check_set);
    return registry_->Open(hello, nullptr)->stream;
  }
  // Of a run of one process, with one step.
  void TrainAndEnd(const StreamId& stream) {
    BatchFacts facts;
    facts.place = PlaceRecord{
        .header = {}, .rank = 0, .world_size = 1, .local_rank = 0, .source = 0};
    ASSERT_TRUE(registry_->AddBatch(stream, StepBatch(0), facts, nullptr).ok());
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    ASSERT_TRUE(registry_->End(stream, goodbye, nullptr).ok());
  }
  std::string SetOf(const std::string& run) {
    return registry_->View(run)->check_set;
  }
  // What the check of the run was by, once the store has its result.
  std::string CheckedAgainst(const std::string& run) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (absl::Now() < deadline) {
      const auto check = ReadCheck(*store_, *registry_->NumberOf(run));
      if (check.ok() && check->finished()) return check->set();
      absl::SleepFor(absl::Milliseconds(1));
    }
    ADD_FAILURE() << "gave up waiting for the check of " << run;
    return "";
  }

  const std::string dir_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<RulePolicy> policy_;
  std::unique_ptr<LiveChecks> checks_;
};

TEST_F(PinnedSetTest, AVersionThatComesAfterTheRunHasBegunIsForTheNext) {
  SaveSet("rules");
  Open("run", "rules");
  EXPECT_EQ(SetOf("run"), "rules@1");
  // Before any check has looked at the run.
  SaveSet("rules");
  Close();
  Load();
  EXPECT_EQ(SetOf("run"), "rules@1");
  SaveSet("rules");
  TrainAndEnd(Open("run", "rules"));
  StartChecks();
  EXPECT_EQ(CheckedAgainst("run"), "rules@1");
  TrainAndEnd(Open("next", "rules"));
  EXPECT_EQ(CheckedAgainst("next"), "rules@3");
}

TEST_F(PinnedSetTest, ASetThatComesAfterTheRunIsTakenAsItComes) {
  const StreamId stream = Open("run", "rules");
  EXPECT_EQ(SetOf("run"), "rules");
  SaveSet("rules");
  TrainAndEnd(stream);
  StartChecks();
  EXPECT_EQ(CheckedAgainst("run"), "rules@1");
}

}  // namespace
}  // namespace traincheck::server
