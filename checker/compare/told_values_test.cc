#include "checker/compare/told_values.h"

#include <gtest/gtest.h>

#include <string>

#include "invariants/testing/trace_builder.h"
#include "proto/record_reader.h"
#include "proto/record_writer.h"

namespace traincheck {
namespace {

// A call that has returned a text, and the definitions of its process.
class ReturnedText {
 public:
  explicit ReturnedText(const std::string& text) {
    TraceBuilder trace;
    const uint32_t id = trace.String(text);
    for (const StoredBatch& batch : trace.TakeBatches()) {
      RecordReader records(batch.plain);
      while (records.Next()) {
        if (IsDefinition(records.header().type)) definitions.Apply(records);
      }
    }
    alignas(8) char buffer[256];
    FieldWriter out(buffer, sizeof buffer, DefinitionRecord{});
    out.Unsigned(Field::kReturn, 0);
    out.Unsigned(Field::kValueString, id);
    const size_t size = out.Finish(RecordType::kStringDef, 0, 0);
    call.result.assign(buffer + sizeof(DefinitionRecord),
                       size - sizeof(DefinitionRecord));
  }

  ProcessDefinitions definitions;
  Call call;
};

bool AreAlike(const std::string& a, const std::string& b) {
  const ReturnedText in_a(a), in_b(b);
  const ToldComparison told = CompareResults(
      in_a.call, in_b.call, {in_a.definitions, in_b.definitions});
  EXPECT_EQ(told.compared, 1u);
  return !told.first;
}

TEST(ToldValues, TextsAreComparedUnlessOneNamesAPlace) {
  EXPECT_TRUE(AreAlike("mean", "mean"));
  EXPECT_FALSE(AreAlike("mean", "sum"));
  EXPECT_TRUE(AreAlike("/tmp/run-1", "/tmp/run-2"));
  EXPECT_TRUE(AreAlike("/tmp/run-1", "here"));
  EXPECT_TRUE(AreAlike("here", "/tmp/run-1"));
}

}  // namespace
}  // namespace traincheck
