#include "tests/fault/process_audit.h"

#include <string>

#include "gtest/gtest.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

TestSlice Slice(uint64_t from, const std::string& bytes, uint32_t records) {
  return {.ring = 1, .from = from, .bytes = bytes, .records = records};
}

nlohmann::json MainRing(const ProcessAudit& audit) {
  return audit.Show()["rings"][0];
}

TEST(ProcessAuditTest, FollowsPositionsCallsAndSteps) {
  const std::string calls = CallRecords(1) + CallRecords(2);
  ProcessAudit audit;
  audit.Add(0, MakeBatch(0, {Slice(0, calls, 4)}));
  audit.Add(1, MakeBatch(1, {Slice(calls.size(), StepClosedRecord(0), 1)}));
  const auto ring = MainRing(audit);
  EXPECT_EQ(ring["records"], 5);
  EXPECT_EQ(ring["calls"], 2);
  EXPECT_EQ(ring["steps"], 1);
  for (const char* key : {"missing_calls", "repeated_calls", "missing_steps",
                          "repeated_steps", "overlaps"}) {
    EXPECT_EQ(ring[key], 0) << key;
  }
  EXPECT_TRUE(ring["gaps"].empty());
  EXPECT_TRUE(audit.Show()["errors"].empty());
}

TEST(ProcessAuditTest, SeesWhatIsStoredTwice) {
  const std::string call = CallRecords(1);
  ProcessAudit audit;
  audit.Add(0, MakeBatch(0, {Slice(0, call, 2)}));
  audit.Add(1, MakeBatch(1, {Slice(0, call, 2)}));
  EXPECT_EQ(MainRing(audit)["overlaps"], 1);
  EXPECT_EQ(MainRing(audit)["repeated_calls"], 1);
}

TEST(ProcessAuditTest, SeesWhatIsMissing) {
  const std::string call = CallRecords(1);
  ProcessAudit audit;
  audit.Add(0, MakeBatch(0, {Slice(0, call, 2)}));
  audit.Add(1, MakeBatch(1, {Slice(call.size() + 64, CallRecords(4), 2)}));
  EXPECT_EQ(MainRing(audit)["missing_calls"], 2);
  EXPECT_EQ(MainRing(audit)["gaps"].size(), 1);
}

TEST(ProcessAuditTest, SeesAMissingBeginning) {
  ProcessAudit audit;
  audit.Add(3, MakeBatch(3, {Slice(640, StepClosedRecord(7), 1)}));
  EXPECT_EQ(MainRing(audit)["missing_steps"], 7);
  EXPECT_EQ(MainRing(audit)["gaps"].size(), 1);
}

TEST(ProcessAuditTest, SeesUseWithoutDefinitionAndWrongCounts) {
  ProcessAudit audit;
  audit.Add(0, MakeBatch(0, {Slice(0, StateRecordOf(9, 1), 2)}));
  EXPECT_EQ(audit.Show()["undefined"], 1);
  EXPECT_EQ(audit.Show()["errors"].size(), 1);
}

}  // namespace
}  // namespace traincheck::server
