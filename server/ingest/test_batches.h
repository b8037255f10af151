// Batches as relays send them, for tests.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_INGEST_TEST_BATCHES_H_
#define TRAINCHECK_SERVER_INGEST_TEST_BATCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/record_format.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::server {

// Single records.
std::string StepClosedRecord(uint64_t step);
std::string CleanExitRecord();
std::string PlaceRecordOf(int32_t rank, int32_t world);
std::string ProcessRecord(ProcessKind kind);
std::string DropsRecordOf(uint64_t dropped);
// A call's begin with a field and its end.
std::string CallRecords(uint32_t call);
std::string StateRecordOf(uint32_t variable, uint64_t digest);
std::string PaddingRecord();

struct TestSlice {
  uint32_t ring = 1;
  uint64_t from = 0;
  std::string bytes;
  uint32_t records = 1;
};

std::string Compress(const std::string& plain);
v1::Batch MakeBatch(uint64_t number, const std::vector<TestSlice>& slices);
// One StepClosed record in ring 1, as batch and step `number`: such batches
// follow each other without a gap.
v1::Batch StepBatch(uint64_t number);

v1::Hello MakeHello(const std::string& run, uint32_t pid);
v1::RingReport MakeReport(uint32_t ring, uint64_t committed, uint64_t dropped);

v1::IngestRequest Request(const v1::Hello& hello);
v1::IngestRequest Request(const v1::Batch& batch);
v1::IngestRequest GoodbyeRequest(v1::EndKind end,
                                 const std::vector<v1::RingReport>& rings);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_TEST_BATCHES_H_
