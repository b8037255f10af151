#include "invariants/trace/deferred_digests.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "invariants/testing/deferred_states.h"
#include "invariants/testing/trace_builder.h"
#include "invariants/trace/process_reader.h"

namespace traincheck {
namespace {

// States and quiet times as text, in the order in which they come.
class States final : public EventVisitor {
 public:
  std::vector<std::string> Take() { return std::exchange(seen_, {}); }

 private:
  void OnState(const StateEvent& event) override {
    std::string text = std::to_string(event.variable_id) + ":";
    if (event.Has(kHasData)) text += " data " + std::to_string(event.data);
    if (event.Has(kDataIsZero)) text += " zero";
    if (event.Has(kHasGrad)) text += " grad " + std::to_string(event.grad);
    if (event.Has(kGradIsZero)) text += " zero";
    if (event.Has(kUnreadable)) text += " unreadable";
    seen_.push_back(text);
  }
  void OnQuiet() override { seen_.push_back("quiet"); }
  void OnCallBegin(const Call&) override {}
  void OnCallEnd(const Call&, CallOutcome, uint8_t) override {}
  void OnScalar(const ScalarEvent&) override {}
  void OnMark(const MarkEvent&) override { seen_.push_back("mark"); }
  void OnPlace(const PlaceRecord&) override {}
  void OnGap(const std::string& reason) override {
    seen_.push_back("gap: " + reason);
  }
  void OnDefinition(RecordType, uint32_t) override {}

  std::vector<std::string> seen_;
};

using Seen = std::vector<std::string>;

class DeferredDigestsTest : public testing::Test {
 protected:
  DeferredDigestsTest() {
    weight_ = trace_.Variable(0, "Net", "weight", {});
    trace_.State(StatePoint::kPreStep, weight_, {.data = 11, .grad = 0});
    trace_.Cut();
    trace_.Mark(MarkKind::kStepClosed, 0, 0);
    trace_.Cut();
    trace_.State(StatePoint::kPostStep, weight_,
                 {.data = 12, .grad = {}, .no_grad = true});
    trace_.Cut();
  }

  // Digests come `lag` batches late at most; with `lost` never.
  std::vector<StoredBatch> Deferred(uint32_t lag, bool lost = false) {
    std::mt19937_64 random(1);
    return DeferStates(trace_.TakeBatches(),
                       {.percent_lost = lost ? 100u : 0u, .max_lag = lag},
                       &random);
  }

  TraceBuilder trace_;
  uint32_t weight_ = 0;
  States states_;
  ProcessReader reader_{&states_};
};

const Seen kImmediate = {"1: data 11 grad 0 zero", "mark", "1: data 12"};
const Seen kNever = {"1: unreadable", "mark", "1: unreadable"};

TEST_F(DeferredDigestsTest, ComeAsIfTheyHadBeenThere) {
  for (const StoredBatch& batch : Deferred(3)) reader_.Consume(batch);
  EXPECT_EQ(states_.Take(), kImmediate);
  reader_.End();
  EXPECT_EQ(states_.Take(), Seen());
}

TEST_F(DeferredDigestsTest, OfTheSameBatchAreNotWaitedFor) {
  const auto batches = Deferred(0);
  reader_.Consume(batches[0]);
  EXPECT_EQ(states_.Take(), Seen{kImmediate[0]});
}

TEST_F(DeferredDigestsTest, ThatNeverComeAreUnreadableAtTheEnd) {
  for (const StoredBatch& batch : Deferred(3, true)) reader_.Consume(batch);
  EXPECT_EQ(states_.Take(), Seen());
  reader_.End();
  EXPECT_EQ(states_.Take(), kNever);
}

TEST_F(DeferredDigestsTest, AProcessThatIsQuietForLongIsNotWaitedFor) {
  for (int i = 0; i < 3; ++i) trace_.Quiet(10);
  const auto batches = Deferred(3, true);
  for (size_t i = 0; i + 1 < batches.size(); ++i) reader_.Consume(batches[i]);
  EXPECT_EQ(states_.Take(), Seen());
  reader_.Consume(batches.back());
  Seen expected = kNever;
  expected.insert(expected.end(), 3, "quiet");
  EXPECT_EQ(states_.Take(), expected);
}

TEST_F(DeferredDigestsTest, RecordsThatWaitAreBounded) {
  const auto batches = Deferred(3, true);
  for (const StoredBatch& batch : batches) reader_.Consume(batch);
  uint64_t bytes = 0;
  while (states_.Take().empty()) {
    ASSERT_LT(bytes, DeferredDigests::kMaxHeldBytes + (1 << 20));
    for (int i = 0; i < 1000; ++i) trace_.Mark(MarkKind::kStepClosed, 0, 1);
    trace_.Cut();
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      bytes += batch.plain.size();
      reader_.Consume(batch);
    }
  }
}

TEST_F(DeferredDigestsTest, ThatWaitAreSaved) {
  const auto batches = Deferred(2);
  for (size_t restart = 0; restart < batches.size(); ++restart) {
    auto reader = std::make_unique<ProcessReader>(&states_);
    for (size_t i = 0; i < batches.size(); ++i) {
      if (i == restart) {
        Archive to;
        reader->Fields(to);
        const std::string bytes = to.TakeBytes();
        reader = std::make_unique<ProcessReader>(&states_);
        Archive from(bytes);
        reader->Fields(from);
        ASSERT_TRUE(from.ok() && from.at_end()) << from.error();
      }
      reader->Consume(batches[i]);
    }
    EXPECT_EQ(states_.Take(), kImmediate);
  }
}

TEST_F(DeferredDigestsTest, ThatTheDeviceCouldNotComputeAreUnreadable) {
  auto batches = Deferred(0);
  for (StoredBatch& batch : batches) {
    // Behind each record of one entry: its flags.
    for (size_t at = 0; at < batch.plain.size();) {
      auto* header = reinterpret_cast<RecordHeader*>(&batch.plain[at]);
      if (header->type == static_cast<uint8_t>(RecordType::kDeferredDigests)) {
        auto* entry = reinterpret_cast<DeferredDigest*>(
            &batch.plain[at + sizeof(DeferredDigestsRecord)]);
        entry->flags = kDeferredUnreadable;
      }
      at += header->size_bytes;
    }
    reader_.Consume(batch);
  }
  EXPECT_EQ(states_.Take(), kNever);
}

// An older daemon takes a deferred state for an unreadable one, and skips the
// record that it does not know.
TEST_F(DeferredDigestsTest, AreUnreadableForWhomDoesNotKnowThem) {
  const auto batches = Deferred(0);
  int states = 0;
  RecordReader reader(batches[0].plain);
  while (reader.Next()) {
    if (reader.type() != RecordType::kState) continue;
    const auto& state = reader.Get<StateRecord>();
    EXPECT_EQ(state.content & (kUnreadable | kHasData | kHasGrad), kUnreadable);
    ++states;
  }
  EXPECT_EQ(states, 1);
}

}  // namespace
}  // namespace traincheck
