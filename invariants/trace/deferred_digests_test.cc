#include "invariants/trace/deferred_digests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/seed_for_testing.h"
#include "invariants/testing/deferred_states.h"
#include "invariants/testing/random_run.h"
#include "invariants/testing/trace_builder.h"
#include "invariants/trace/process_reader.h"

namespace traincheck {
namespace {

// Events as text, in the order in which they come.
class Events final : public EventVisitor {
 public:
  std::vector<std::string> Take() { return std::exchange(seen_, {}); }

 private:
  void Note(const std::string& text) { seen_.push_back(text); }
  static std::string Number(const Call* call) {
    return call == nullptr ? "-" : std::to_string(call->number);
  }

  void OnState(const StateEvent& event) override {
    std::string text = std::to_string(event.variable_id) + ":";
    if (event.Has(kHasData)) text += " data " + std::to_string(event.data);
    if (event.Has(kDataIsZero)) text += " zero";
    if (event.Has(kHasGrad)) text += " grad " + std::to_string(event.grad);
    if (event.Has(kGradIsZero)) text += " zero";
    if (event.grad_is_finite) {
      text += *event.grad_is_finite ? " finite" : " not finite";
    }
    if (event.Has(kGradIsNone)) text += " none";
    if (event.Has(kUnreadable)) text += " unreadable";
    Note(text);
  }
  void OnStatistics(const StatisticsEvent& event) override {
    Note("statistics of " + std::to_string(event.variable_id));
  }
  void OnRows(const RowsEvent& event) override {
    Note("rows of " + std::to_string(event.variable_id));
  }
  void OnQuiet() override { Note("quiet"); }
  void OnCallBegin(const Call& call) override {
    Note("begin " + Number(&call));
  }
  void OnCallEnd(const Call& call, CallOutcome outcome, uint8_t) override {
    Note("end " + Number(&call) + " " + std::to_string(int(outcome)));
  }
  void OnScalar(const ScalarEvent& event) override {
    Note(*event.name + " " + std::to_string(event.value));
  }
  void OnMark(const MarkEvent& event) override {
    Note("mark " + std::to_string(int(event.kind)) + " in " +
         Number(event.call));
  }
  void OnPlace(const PlaceRecord& place) override {
    Note("rank " + std::to_string(place.rank));
  }
  void OnGap(const std::string& reason) override { Note("gap: " + reason); }
  void OnDefinition(RecordType type, uint32_t id) override {
    Note("definition " + std::to_string(int(type)) + " " + std::to_string(id));
  }

  std::vector<std::string> seen_;
};

using Seen = std::vector<std::string>;

Seen WithoutDefinitions(Seen seen) {
  std::erase_if(seen, [](const std::string& text) {
    return text.starts_with("definition");
  });
  return seen;
}

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
  Events events_;
  ProcessReader reader_{&events_};
};

const std::string kStepClosed = "mark 5 in -";
const Seen kImmediate = {"1: data 11 grad 0 zero", kStepClosed,
                         "1: data 12 none"};
const Seen kNever = {"1: unreadable", kStepClosed, "1: none unreadable"};

// What the reader says of batches, saved and restored before some of them.
Seen EventsOf(const std::vector<StoredBatch>& batches,
              const std::vector<bool>& restarts) {
  Events events;
  auto reader = std::make_unique<ProcessReader>(&events);
  for (size_t i = 0; i < batches.size(); ++i) {
    if (restarts[i % restarts.size()]) {
      Archive to;
      reader->Fields(to);
      const std::string bytes = to.TakeBytes();
      reader = std::make_unique<ProcessReader>(&events);
      Archive from(bytes);
      reader->Fields(from);
      EXPECT_TRUE(from.ok() && from.at_end()) << from.error();
    }
    reader->Consume(batches[i]);
  }
  reader->End();
  return events.Take();
}

// Whole runs, some with holes in their records, some killed.
TEST(DeferredDigests, GiveTheEventsOfImmediateOnes) {
  const uint64_t first = SeedForTesting(20261126);
  size_t late = 0;
  for (uint64_t seed = first; seed < first + SeedsForTesting(60); ++seed) {
    const RandomRun run = DrawRun(seed);
    SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
    std::mt19937_64 random(seed);
    for (const RandomProcess& process : run.processes) {
      const auto deferred =
          DeferStates(process.batches,
                      {.percent_deferred = seed % 2 == 0 ? 100u : 60u,
                       .max_lag = static_cast<uint32_t>(seed % 7)},
                      &random);
      const Seen expected = EventsOf(process.batches, {false});
      const Seen found = EventsOf(deferred, {false, true, false, false});
      const auto differs = std::mismatch(expected.begin(), expected.end(),
                                         found.begin(), found.end());
      ASSERT_TRUE(differs.first == expected.end() &&
                  differs.second == found.end())
          << "event " << differs.first - expected.begin() << " of "
          << expected.size() << ": "
          << (differs.first == expected.end() ? "none" : *differs.first)
          << ", found "
          << (differs.second == found.end() ? "none" : *differs.second);
      late += deferred.size() > process.batches.size();
    }
  }
  EXPECT_GT(late, 0u);
}

TEST_F(DeferredDigestsTest, SayWhetherAGradientIsFinite) {
  for (const uint64_t not_finite : {0, 2}) {
    trace_.State(StatePoint::kPreStep, weight_, {.data = 11, .grad = 5});
    trace_.Statistics(StatePoint::kPreStep, weight_, kHasGrad, not_finite);
  }
  trace_.Cut();
  Seen expected = kImmediate;  // without statistics nothing is known
  expected.push_back("1: data 11 grad 5 finite");
  expected.push_back("1: data 11 grad 5 not finite");
  EXPECT_EQ(WithoutDefinitions(EventsOf(Deferred(2), {false})), expected);
}

TEST_F(DeferredDigestsTest, ComeAsIfTheyHadBeenThere) {
  for (const StoredBatch& batch : Deferred(3)) reader_.Consume(batch);
  EXPECT_EQ(WithoutDefinitions(events_.Take()), kImmediate);
  reader_.End();
  EXPECT_EQ(WithoutDefinitions(events_.Take()), Seen());
}

TEST_F(DeferredDigestsTest, OfTheSameBatchAreNotWaitedFor) {
  const auto batches = Deferred(0);
  reader_.Consume(batches[0]);
  EXPECT_EQ(WithoutDefinitions(events_.Take()), Seen{kImmediate[0]});
}

TEST_F(DeferredDigestsTest, ThatNeverComeAreUnreadableAtTheEnd) {
  for (const StoredBatch& batch : Deferred(3, true)) reader_.Consume(batch);
  EXPECT_EQ(WithoutDefinitions(events_.Take()), Seen());
  reader_.End();
  EXPECT_EQ(WithoutDefinitions(events_.Take()), kNever);
}

TEST_F(DeferredDigestsTest, AProcessThatIsQuietForLongIsNotWaitedFor) {
  for (int i = 0; i < 3; ++i) trace_.Quiet(10);
  const auto batches = Deferred(3, true);
  for (size_t i = 0; i + 1 < batches.size(); ++i) reader_.Consume(batches[i]);
  EXPECT_EQ(WithoutDefinitions(events_.Take()), Seen());
  reader_.Consume(batches.back());
  Seen expected = kNever;
  expected.insert(expected.end(), 3, "quiet");
  EXPECT_EQ(WithoutDefinitions(events_.Take()), expected);
}

TEST_F(DeferredDigestsTest, RecordsThatWaitAreBounded) {
  for (int i = 0; i < 400'000; ++i) {
    trace_.Mark(MarkKind::kStepClosed, 0, 1);
    if (i % 1000 == 0) trace_.Cut();
  }
  uint64_t bytes = 0;
  for (const StoredBatch& batch : Deferred(3, true)) {
    bytes += batch.plain.size();
    reader_.Consume(batch);
    if (!WithoutDefinitions(events_.Take()).empty()) break;
  }
  EXPECT_GT(bytes, DeferredDigests::kMaxHeldBytes);
  EXPECT_LT(bytes, DeferredDigests::kMaxHeldBytes + (1 << 20));
}

// The digest may be among the records that are missing.
TEST_F(DeferredDigestsTest, AreNotWaitedForLongBehindAHole) {
  trace_.Lose();
  for (uint64_t i = 0; i < DeferredDigests::kMaxBehindLoss; ++i) {
    trace_.Mark(MarkKind::kUserStage, 0, 0);
    trace_.Cut();
  }
  trace_.State(StatePoint::kPreStep, weight_, {.data = 13});
  trace_.Cut();
  const auto batches = Deferred(3, true);
  const size_t hole = 3;
  Seen seen;
  for (size_t i = 0; i < batches.size(); ++i) {
    reader_.Consume(batches[i]);
    const Seen more = WithoutDefinitions(events_.Take());
    EXPECT_EQ(more.empty(), i < hole + DeferredDigests::kMaxBehindLoss) << i;
    seen.insert(seen.end(), more.begin(), more.end());
  }
  ASSERT_GT(seen.size(), 4u);
  EXPECT_EQ(Seen(seen.begin(), seen.begin() + 3), kNever);
  EXPECT_EQ(seen[3], "gap: a hole between two batches");
  // What is awaited since then is waited for.
  reader_.End();
  EXPECT_EQ(WithoutDefinitions(events_.Take()), Seen{"1: unreadable"});
  EXPECT_EQ(EventsOf(batches, {true}), EventsOf(batches, {false}));
}

TEST_F(DeferredDigestsTest, AreNotWaitedForLongBehindDroppedRecords) {
  auto batches = Deferred(3, true);
  uint64_t at = 0;
  for (const StoredBatch& batch : batches) {
    for (const RingSlice& slice : batch.slices) {
      if (slice.ring == 1) at = slice.to;
    }
  }
  uint64_t after = 0;
  for (const StoredBatch& batch : batches) reader_.Consume(batch);
  while (WithoutDefinitions(events_.Take()).empty()) {
    ASSERT_LE(after, DeferredDigests::kMaxBehindLoss);
    DropsRecord record = {};
    record.header = {sizeof record, static_cast<uint8_t>(RecordType::kDrops), 0,
                     1};
    record.dropped_records = 1;  // in each: the sum does not grow
    StoredBatch batch;
    batch.number = batches.size() + after++;
    batch.slices = {{1, at, at + sizeof record, 1}};
    batch.plain.assign(reinterpret_cast<const char*>(&record), sizeof record);
    at += sizeof record;
    reader_.Consume(batch);
  }
  EXPECT_EQ(after, DeferredDigests::kMaxBehindLoss + 1);
}

TEST_F(DeferredDigestsTest, ThatWaitAreSaved) {
  const auto batches = Deferred(2);
  for (size_t restart = 0; restart < batches.size(); ++restart) {
    std::vector<bool> restarts(batches.size(), false);
    restarts[restart] = true;
    EXPECT_EQ(WithoutDefinitions(EventsOf(batches, restarts)), kImmediate);
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
  EXPECT_EQ(WithoutDefinitions(events_.Take()), kNever);
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
