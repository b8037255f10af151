// A registry on a real store with a clock that the test moves.
//
// Threads: one test.
#ifndef TRAINCHECK_SERVER_RUNS_REGISTRY_FOR_TESTING_H_
#define TRAINCHECK_SERVER_RUNS_REGISTRY_FOR_TESTING_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/runs/registry.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {

inline v1::Hello MakeHello(uint32_t pid, uint32_t attempt = 0) {
  v1::Hello hello;
  hello.mutable_process()->set_host("node");
  hello.mutable_process()->set_boot_id("boot");
  hello.mutable_process()->set_pid(pid);
  hello.mutable_process()->set_start_ticks(pid);
  hello.mutable_process()->set_kind(v1::PROCESS_KIND_MAIN);
  hello.set_run("run");
  hello.set_experiment("experiment");
  hello.set_role(v1::RUN_ROLE_TARGET);
  hello.set_check_set("rules");
  hello.set_attempt(attempt);
  return hello;
}

class RegistryTest : public testing::Test {
 protected:
  RegistryTest()
      : dir_(testing::TempDir() + "/registry-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    Load();
  }
  ~RegistryTest() override { Close(); }

  void Load() {
    store_ = *OpenRocksdbStore(dir_);
    registry_ = *Registry::Load(store_.get(), {.lost_after = absl::Seconds(600),
                                               .now = [this] { return now_; }});
  }
  // The store first: its thread uses the registry.
  void Close() {
    if (store_) store_->Close();
    store_.reset();
    registry_.reset();
  }
  void Restart() {
    Close();
    Load();
  }

  StreamId Open(uint32_t pid, uint32_t attempt = 0) {
    const auto opened = registry_->Open(MakeHello(pid, attempt), nullptr);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? opened->stream : StreamId();
  }
  // One record of 8 bytes.
  static v1::Slice MakeSlice(uint32_t ring, uint64_t from) {
    v1::Slice slice;
    slice.set_ring(ring);
    slice.set_from(from);
    slice.set_to(from + 8);
    slice.set_records(1);
    return slice;
  }
  void Add(const StreamId& stream, const BatchFacts& facts) {
    AddSlices(stream, {MakeSlice(1, 8 * NextBatch(stream))}, facts);
  }
  uint64_t NextBatch(const StreamId& stream) const {
    return registry_->Run("run")->processes(stream.process).next_batch();
  }
  void AddSlices(const StreamId& stream, const std::vector<v1::Slice>& slices,
                 const BatchFacts& facts = BatchFacts()) {
    v1::Batch batch;
    batch.set_number(NextBatch(stream));
    for (const v1::Slice& slice : slices) *batch.add_slices() = slice;
    const auto fate = registry_->AddBatch(stream, batch, facts, nullptr);
    ASSERT_TRUE(fate.ok()) << fate.status();
    EXPECT_EQ(*fate, Registry::Fate::kStored);
  }
  void AddPlace(const StreamId& stream, int32_t rank, int32_t world,
                const std::string& start = "") {
    BatchFacts facts;
    facts.start = start;
    facts.place =
        PlaceRecord{.header = {},
                    .rank = rank,
                    .world_size = world,
                    .local_rank = rank,
                    .source = static_cast<uint32_t>(PlaceSource::kEnvironment)};
    Add(stream, facts);
  }
  void AddStep(const StreamId& stream, uint64_t step) {
    BatchFacts facts;
    facts.first_step = facts.last_step = step;
    Add(stream, facts);
  }
  void End(const StreamId& stream, v1::EndKind end) {
    v1::Goodbye goodbye;
    goodbye.set_end(end);
    goodbye.add_rings()->set_ring(1);
    ASSERT_TRUE(registry_->End(stream, goodbye, nullptr).ok());
  }
  void Pass(absl::Duration time) {
    now_ += time;
    registry_->Tick();
  }
  v1::Run Run() { return *registry_->Run("run"); }
  v1::Process Process(int number) { return Run().processes(number); }

  const std::string dir_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Store> store_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_REGISTRY_FOR_TESTING_H_
