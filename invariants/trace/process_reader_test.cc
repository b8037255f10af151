#include "invariants/trace/process_reader.h"

#include <gtest/gtest.h>

#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

// Writes events down, one word each.
class Diary : public EventVisitor {
 public:
  void OnCallBegin(const Call& call) override {
    Write("begin " + (call.function ? call.function->name : "?"));
  }
  void OnCallEnd(const Call& call, CallOutcome outcome, uint8_t) override {
    const char* how = outcome == CallOutcome::kReturned ? "end "
                      : outcome == CallOutcome::kRaised ? "raised "
                                                        : "lost ";
    Write(how + (call.function ? call.function->name : "?"));
  }
  void OnState(const StateEvent& event) override {
    Write("state " + event.variable->name +
          (event.call ? " in " + event.call->function->name : ""));
  }
  void OnScalar(const ScalarEvent& event) override {
    Write(*event.name + " " + std::to_string(event.value));
  }
  void OnMark(const MarkEvent& event) override {
    Write("mark " + std::to_string(static_cast<int>(event.kind)));
  }
  void OnPlace(const PlaceRecord& place) override {
    Write("rank " + std::to_string(place.rank));
  }
  void OnGap(const std::string& reason) override { Write("gap: " + reason); }
  void OnDefinition(RecordType type, uint32_t id) override {
    if (type == RecordType::kProcessDef) Write("process");
  }

  std::string Take() { return std::move(text_); }

 private:
  void Write(const std::string& line) {
    text_ += (text_.empty() ? "" : ", ") + line;
  }
  std::string text_;
};

class ProcessReaderTest : public testing::Test {
 protected:
  std::string Read() {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      reader_.Consume(batch);
    }
    return diary_.Take();
  }

  TraceBuilder trace_;
  Diary diary_;
  ProcessReader reader_{&diary_};
  const uint32_t f_ = trace_.Function("f", "forward", {});
  const uint32_t g_ = trace_.Function("g", "forward", {});
};

TEST_F(ProcessReaderTest, CallsAndStatesComeInOrder) {
  const uint32_t w = trace_.Variable(1, "Net", "w", {});
  trace_.Begin(f_, {});
  trace_.State(StatePoint::kPreStep, w, {.data = 1});
  trace_.Begin(g_, {});
  trace_.Raise();
  trace_.LearningRate(3, 0, 0.5);
  trace_.End();
  trace_.Place(1, 2);
  EXPECT_EQ(Read(),
            "begin f, state w in f, begin g, raised g, lr 0.500000, end f, "
            "rank 1");
}

TEST_F(ProcessReaderTest, RingsOfABatchAreMergedByTime) {
  trace_.Begin(f_, {.ring = 1});
  trace_.Begin(g_, {.ring = 2});
  trace_.End(0, 1);
  trace_.End(0, 2);
  EXPECT_EQ(Read(), "begin f, begin g, end f, end g");
}

TEST_F(ProcessReaderTest, CallsStayOpenOverBatches) {
  trace_.Begin(f_, {});
  EXPECT_EQ(Read(), "begin f");
  trace_.End();
  EXPECT_EQ(Read(), "end f");
}

TEST_F(ProcessReaderTest, MissingPositionsAreAGapAndOpenCallsEndUnknown) {
  trace_.Begin(f_, {});
  trace_.Begin(g_, {});
  trace_.Lose();
  trace_.End();
  trace_.End();
  trace_.Begin(g_, {});
  EXPECT_EQ(Read(),
            "begin f, begin g, gap: a hole between two batches, "
            "end g, end f, begin g");
}

TEST_F(ProcessReaderTest, NothingIsSureOnceThereAreTooManyDefinitions) {
  // Of 1 MB each, in a few hundred bytes.
  const std::vector<std::string> roles(1'000, std::string(1024, 'x'));
  std::string seen;
  for (int i = 0; i < 200 && seen.empty(); ++i) {
    trace_.Function("large" + std::to_string(i), "forward", roles);
    seen = Read();
  }
  const char* const kGap = "gap: the process defines more than 128 MiB";
  EXPECT_TRUE(seen.starts_with(kGap)) << seen;
  trace_.Begin(f_, {});
  seen = Read();
  EXPECT_TRUE(seen.ends_with("gap: definitions are missing, begin f")) << seen;
  trace_.End();
  EXPECT_EQ(Read(), "gap: definitions are missing, end f");
}

TEST_F(ProcessReaderTest, NothingIsSureOnceDefinitionsAreMissing) {
  trace_.Begin(f_, {});
  trace_.End();
  EXPECT_EQ(Read(), "begin f, end f");
  trace_.Function("lost", "forward", {});
  trace_.TakeBatches();
  trace_.Begin(f_, {});
  trace_.Function("h", "forward", {});
  EXPECT_EQ(Read(),
            "gap: a hole between two batches, gap: definitions are missing, "
            "begin f");
  trace_.End();
  EXPECT_EQ(Read(), "gap: definitions are missing, end f");
}

TEST_F(ProcessReaderTest, ALostEndIsSeenByTheNextBegin) {
  trace_.Begin(f_, {});
  Read();
  // f's end lies in what is lost; the next call has no parent.
  trace_.End();
  trace_.TakeBatches();
  trace_.Begin(g_, {});
  EXPECT_EQ(Read(), "gap: a hole between two batches, lost f, begin g");
}

TEST_F(ProcessReaderTest, ADefinitionThatReplacesWaitsForItsTime) {
  trace_.Process(ProcessKind::kMain, 0);
  Read();
  trace_.Begin(f_, {});
  trace_.End();
  trace_.Process(ProcessKind::kWorker, 0);
  // A process definition is always new to the table.
  EXPECT_EQ(Read(), "process, begin f, end f");
  EXPECT_EQ(reader_.definitions().process().kind, ProcessKind::kWorker);
}

TEST_F(ProcessReaderTest, UnknownFunctionIsAGap) {
  trace_.Begin(77, {});
  trace_.End();
  EXPECT_EQ(Read(), "gap: a function's definition is missing, begin ?, end ?");
}

TEST_F(ProcessReaderTest, MalformedBytesAreAGap) {
  StoredBatch batch;
  batch.plain = std::string(16, '\x07');
  batch.slices.push_back({1, 0, 16, 1});
  reader_.Consume(batch);
  EXPECT_EQ(diary_.Take(), "gap: a stored batch is malformed");
}

TEST_F(ProcessReaderTest, SlicesBeyondTheBatchAreAGap) {
  StoredBatch batch;
  batch.plain = std::string(8, '\0');
  batch.slices.push_back({1, 0, 4096, 1});
  reader_.Consume(batch);
  EXPECT_EQ(diary_.Take(), "gap: a stored batch does not fit its slices");
}

TEST(Definitions, BytesThatAreNoUtf8BecomeQuestionMarks) {
  TraceBuilder trace;
  Diary diary;
  ProcessReader reader(&diary);
  const uint32_t good = trace.String("caf\xc3\xa9");
  const uint32_t bad = trace.String("caf\xc3");
  const uint32_t overlong = trace.String("\xe0\x80\x80");
  for (const StoredBatch& batch : trace.TakeBatches()) reader.Consume(batch);
  EXPECT_EQ(reader.definitions().String(good), "caf\xc3\xa9");
  EXPECT_EQ(reader.definitions().String(bad), "caf?");
  EXPECT_EQ(reader.definitions().String(overlong), "???");
}

}  // namespace
}  // namespace traincheck
