#include "server/ingest/test_batches.h"

#include "proto/record_writer.h"
#include "zstd.h"

namespace traincheck::server {
namespace {

// More than any of the records below takes.
constexpr size_t kRoom = 512;

template <typename Fixed>
// A record without fields behind its fixed part. The buffer is aligned as
// records in a ring are, which the writer relies on.
std::string Plain(const Fixed& fixed, RecordType type, uint8_t flags) {
  alignas(8) char buffer[kRoom];
  FieldWriter writer(buffer, sizeof buffer, fixed);
  return std::string(buffer, writer.Finish(type, flags, 1));
}

}  // namespace

std::string StepClosedRecord(uint64_t step) {
  return Plain(MarkRecord{.header = {}, .object = 0, .site = 0, .value = step},
               RecordType::kMark, static_cast<uint8_t>(MarkKind::kStepClosed));
}

std::string CleanExitRecord() {
  return Plain(MarkRecord{}, RecordType::kMark,
               static_cast<uint8_t>(MarkKind::kCleanExit));
}

// As a rank that torchrun has started: the place is known from its environment,
// and no nonce of a start comes with it.
std::string PlaceRecordOf(int32_t rank, int32_t world) {
  return Plain(
      PlaceRecord{.header = {},
                  .rank = rank,
                  .world_size = world,
                  .local_rank = rank,
                  .source = static_cast<uint32_t>(PlaceSource::kEnvironment)},
      RecordType::kPlace, 0);
}

std::string ProcessRecord(ProcessKind kind) {
  alignas(8) char buffer[kRoom];
  FieldWriter writer(buffer, sizeof buffer,
                     DefinitionRecord{.header = {}, .id = 1, .aux = 0});
  writer.Unsigned(Field::kProcessKind, static_cast<uint64_t>(kind));
  return std::string(buffer, writer.Finish(RecordType::kProcessDef, 0, 1));
}

std::string DropsRecordOf(uint64_t dropped) {
  return Plain(DropsRecord{.header = {}, .dropped_records = dropped},
               RecordType::kDrops, 0);
}

// Functions, sites and objects repeat, as in a training loop.
std::string CallRecords(uint32_t call) {
  alignas(8) char buffer[kRoom];
  FieldWriter begin(buffer, sizeof buffer,
                    CallBeginRecord{.header = {},
                                    .function = call % 50 + 1,
                                    .site = call % 20 + 1,
                                    .call = call,
                                    .parent_distance = 0});
  begin.Unsigned(Field::kSelfObject, call % 30 + 1);
  std::string records(buffer, begin.Finish(RecordType::kCallBegin, 0, 7));
  records += Plain(
      CallEndRecord{.header = {}, .call = call, .function = call % 50 + 1},
      RecordType::kCallEnd, 0);
  return records;
}

// A state is followed by the digests that its content announces: here of the
// data alone.
std::string StateRecordOf(uint32_t variable, uint64_t digest) {
  struct StateWithDigest {
    StateRecord state;
    uint64_t digest;
  };
  StateRecord state = {};
  state.variable = variable;
  state.point = static_cast<uint8_t>(StatePoint::kPostStep);
  state.content = kHasData;
  return Plain(StateWithDigest{state, digest}, RecordType::kState, 0);
}

std::string PaddingRecord() {
  return Plain(RecordHeader{}, RecordType::kPadding, 0);
}

// With the checksum that relays must add (DecompressUntrusted).
std::string Compress(const std::string& plain) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string frame(ZSTD_compressBound(plain.size()), '\0');
  frame.resize(ZSTD_compress2(context, frame.data(), frame.size(), plain.data(),
                              plain.size()));
  ZSTD_freeCCtx(context);
  return frame;
}

// Sizes and sums fit each other; only the positions and counts of the slices
// are the caller's.
v1::Batch MakeBatch(uint64_t number, const std::vector<TestSlice>& slices) {
  v1::Batch batch;
  batch.set_number(number);
  std::string plain;
  for (const TestSlice& slice : slices) {
    v1::Slice* added = batch.add_slices();
    added->set_ring(slice.ring);
    added->set_from(slice.from);
    added->set_to(slice.from + slice.bytes.size());
    added->set_records(slice.records);
    plain += slice.bytes;
  }
  batch.set_plain_bytes(plain.size());
  batch.set_payload(Compress(plain));
  return batch;
}

v1::Batch StepBatch(uint64_t number) {
  const std::string record = StepClosedRecord(number);
  return MakeBatch(number, {{.ring = 1,
                             .from = number * record.size(),
                             .bytes = record,
                             .records = 1}});
}

// A reference run: no set is selected for it unless the Hello asks for one.
v1::Hello MakeHello(const std::string& run, uint32_t pid) {
  v1::Hello hello;
  hello.set_format_version_min(kRecordFormatVersionMin);
  hello.set_format_version_max(kRecordFormatVersion);
  hello.set_agent_version("test");
  hello.mutable_process()->set_host("node");
  hello.mutable_process()->set_boot_id("boot");
  hello.mutable_process()->set_pid(pid);
  hello.mutable_process()->set_start_ticks(1000 + pid);
  hello.mutable_process()->set_kind(v1::PROCESS_KIND_MAIN);
  hello.set_run(run);
  hello.set_experiment("experiment");
  hello.set_role(v1::RUN_ROLE_REFERENCE);
  hello.set_started_unix_ns(1);
  return hello;
}

v1::RingReport MakeReport(uint32_t ring, uint64_t committed, uint64_t dropped) {
  v1::RingReport report;
  report.set_ring(ring);
  report.set_offered_records(committed + dropped);
  report.set_committed_records(committed);
  report.set_dropped_records(dropped);
  return report;
}

v1::IngestRequest Request(const v1::Hello& hello) {
  v1::IngestRequest request;
  *request.mutable_hello() = hello;
  return request;
}

v1::IngestRequest Request(const v1::Batch& batch) {
  v1::IngestRequest request;
  *request.mutable_batch() = batch;
  return request;
}

v1::IngestRequest GoodbyeRequest(v1::EndKind end,
                                 const std::vector<v1::RingReport>& rings) {
  v1::IngestRequest request;
  request.mutable_goodbye()->set_end(end);
  for (const v1::RingReport& ring : rings) {
    *request.mutable_goodbye()->add_rings() = ring;
  }
  return request;
}

}  // namespace traincheck::server
