#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "proto/record_writer.h"
#include "server/ingest/batch_decoder.h"
#include "server/ingest/hello_check.h"
#include "server/ingest/limits.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

std::string HelloError(const std::function<void(v1::Hello*)>& spoil) {
  v1::Hello hello = MakeHello("run", 1);
  spoil(&hello);
  const absl::Status status = CheckHelloUntrusted(hello);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Hello, ValidOneIsAccepted) {
  EXPECT_TRUE(CheckHelloUntrusted(MakeHello("slurm:12.a_b-C", 1)).ok());
  EXPECT_TRUE(CheckHelloUntrusted(MakeHello(std::string(128, 'x'), 1)).ok());
}

TEST(Hello, ErrorsNameTheField) {
  EXPECT_THAT(HelloError([](v1::Hello* h) { h->clear_run(); }),
              HasSubstr("Hello.run is empty"));
  EXPECT_THAT(HelloError([](v1::Hello* h) { h->set_run("a/../b"); }),
              HasSubstr("Hello.run \"a/../b\" has characters"));
  EXPECT_THAT(
      HelloError([](v1::Hello* h) { h->set_run(std::string(129, 'x')); }),
      HasSubstr("Hello.run has 129 bytes, the limit is 128"));
  EXPECT_THAT(
      HelloError([](v1::Hello* h) { h->mutable_process()->clear_pid(); }),
      HasSubstr("Hello.process.pid"));
  EXPECT_THAT(
      HelloError([](v1::Hello* h) { h->mutable_process()->clear_host(); }),
      HasSubstr("Hello.process.host"));
  for (const char* host : {"a\nb", "\u202en1", "n1\" reason=\"", "n\\"}) {
    EXPECT_THAT(
        HelloError([=](v1::Hello* h) { h->mutable_process()->set_host(host); }),
        HasSubstr("not the name of a host"));
  }
  EXPECT_THAT(
      HelloError([](v1::Hello* h) { h->set_script(std::string(2000, 'x')); }),
      HasSubstr("Hello.script has 2000 bytes, the limit is 1024"));
  EXPECT_THAT(HelloError([](v1::Hello* h) { h->set_format_version_min(9); }),
              HasSubstr("Hello.format_version_min is 9"));
}

TEST(Hello, TextsAreMadePrintableAndNotRefused) {
  v1::Hello hello = MakeHello("run", 1);
  hello.set_experiment("a\nb");
  hello.set_script("\u009b31m\u202egnp.py");
  hello.set_check_set("größe");
  EXPECT_TRUE(CheckHelloUntrusted(hello).ok());
  MakePrintable(&hello);
  EXPECT_EQ(hello.experiment(), "a\\u{a}b");
  EXPECT_EQ(hello.script(), "\\u{9b}31m\\u{202e}gnp.py");
  EXPECT_EQ(hello.check_set(), "größe");
}

TEST(Hello, FormatIsTheNewestThatBothKnow) {
  v1::Hello hello = MakeHello("run", 1);
  hello.set_format_version_min(0);
  hello.set_format_version_max(50);
  EXPECT_EQ(*ChooseFormat(hello), kRecordFormatVersion);
}

TEST(Hello, NoCommonFormatNamesBothRangesAndWhatToDo) {
  v1::Hello hello = MakeHello("run", 1);
  hello.set_format_version_min(5);
  hello.set_format_version_max(7);
  const absl::Status status = ChooseFormat(hello).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 to 7"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 to 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("update the server"));
  hello.set_format_version_min(0);
  hello.set_format_version_max(0);
  EXPECT_THAT(std::string(ChooseFormat(hello).status().message()),
              HasSubstr("update the agent"));
}

TEST(BatchLimits, ErrorsNameFieldSizeAndLimit) {
  const auto error = [](const v1::Batch& batch) {
    const absl::Status status = CheckBatchLimits(batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckBatchLimits(StepBatch(0)).ok());
  v1::Batch batch = StepBatch(0);
  batch.set_payload(std::string(kMaxPayloadBytes + 1, 'x'));
  EXPECT_THAT(error(batch), HasSubstr("payload bytes has 1048577, the limit "
                                      "is 1048576"));
  batch = StepBatch(0);
  batch.set_plain_bytes(kMaxPlainBytes + 8);
  EXPECT_THAT(error(batch), HasSubstr("plain_bytes has 8388616"));
  batch = StepBatch(0);
  batch.mutable_slices(0)->set_ring(5000);
  EXPECT_THAT(error(batch), HasSubstr("slices.ring has 5000"));
  batch = StepBatch(0);
  batch.set_number(UINT64_MAX);
  EXPECT_THAT(error(batch), HasSubstr("number"));
}

TEST(DecodeBatch, LearnsWhatTheRegistryWants) {
  const v1::Batch batch = MakeBatch(
      0,
      {{.ring = 0, .bytes = ProcessRecord(ProcessKind::kMain)},
       {.ring = 1,
        .bytes = PlaceRecordOf(3, 4) + StepClosedRecord(7) + PaddingRecord() +
                 StepClosedRecord(8) + DropsRecordOf(5) + CleanExitRecord(),
        .records = 5}});
  const absl::StatusOr<BatchFacts> facts = DecodeBatchUntrusted(batch);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->place->rank, 3);
  EXPECT_EQ(facts->place->world_size, 4);
  EXPECT_EQ(facts->kind->kind, ProcessKind::kMain);
  EXPECT_EQ(facts->first_step, 7u);
  EXPECT_EQ(facts->last_step, 8u);
  EXPECT_EQ(facts->dropped.at(1), 5u);
  EXPECT_TRUE(facts->clean_exit);
}

std::string UncleanExitRecord(uint64_t cause, std::string_view text) {
  alignas(8) char buffer[512];
  MarkRecord mark = {};
  mark.value = cause;
  FieldWriter writer(buffer, sizeof buffer, mark);
  writer.Bytes(Field::kText, text);
  const auto kind = static_cast<uint8_t>(MarkKind::kUncleanExit);
  return std::string(buffer, writer.Finish(RecordType::kMark, kind, 1));
}

TEST(DecodeBatch, LearnsHowAProcessSaysThatItEnds) {
  const auto facts = [](uint64_t cause, std::string_view text) {
    return *DecodeBatchUntrusted(
        MakeBatch(0, {{.bytes = UncleanExitRecord(cause, text)}}));
  };
  EXPECT_EQ(facts(1, "a.Error").exit_cause, 1);
  EXPECT_EQ(facts(1, "a.Error").exit_exception, "a.Error");
  EXPECT_EQ(facts(1, "a\x1b\xff").exit_exception, "a\\u{1b}\\x{ff}");
  EXPECT_EQ(facts(2, std::string(400, 'x')).exit_exception.size(), 256u);
  EXPECT_FALSE(facts(2, "KeyboardInterrupt").clean_exit);
  // Of a later version: as if it had said nothing.
  EXPECT_EQ(facts(3, "a.Error").exit_cause, 0);
}

TEST(DecodeBatch, TypesOfTheFutureAreCountedAndSkipped) {
  std::string future = StepClosedRecord(1);
  future[2] = static_cast<char>(200);
  const auto facts = DecodeBatchUntrusted(MakeBatch(0, {{.bytes = future}}));
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->unknown_types, 1u);
}

std::string BatchError(const v1::Batch& batch) {
  const absl::Status status = DecodeBatchUntrusted(batch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(DecodeBatch, AQuietBatchHasNothingElse) {
  v1::Batch quiet = MakeBatch(0, {});
  quiet.set_quiet_monotonic_ns(5000);
  EXPECT_TRUE(DecodeBatchUntrusted(quiet).ok());
  quiet.set_plain_bytes(8);
  EXPECT_THAT(BatchError(quiet), HasSubstr("plain_bytes says 8"));
  v1::Batch both = StepBatch(0);
  both.set_quiet_monotonic_ns(5000);
  EXPECT_THAT(BatchError(both), HasSubstr("says that the process is quiet"));
}

TEST(DecodeBatch, ErrorsSayWhatIsWrongAndWhere) {
  EXPECT_THAT(BatchError(v1::Batch()), HasSubstr("no slices"));
  EXPECT_THAT(
      BatchError(MakeBatch(0, {{.bytes = StepClosedRecord(1), .records = 2}})),
      HasSubstr("holds 1 records, its count says 2"));
  EXPECT_THAT(
      BatchError(MakeBatch(0, {{.from = 64, .bytes = std::string(24, '\0')}})),
      HasSubstr("slice of ring 1 from position 64: record at byte 0"));
  v1::Batch batch = StepBatch(0);
  batch.mutable_slices(0)->set_to(4);
  EXPECT_THAT(BatchError(batch), HasSubstr("positions 0 to 4"));
  batch = StepBatch(0);
  batch.mutable_slices(0)->set_from(48);
  EXPECT_THAT(BatchError(batch), HasSubstr("positions 48 to 24"));
  batch = StepBatch(0);
  batch.mutable_slices(0)->set_to(16);
  EXPECT_THAT(BatchError(batch), HasSubstr("slices have 16 bytes"));
  batch = StepBatch(0);
  batch.mutable_slices(0)->set_from(UINT64_MAX - 7);
  EXPECT_FALSE(BatchError(batch).empty());
}

TEST(DecodeBatch, AMalformedFieldIsAnError) {
  std::string call = CallRecords(1);
  call[24] = '\x83';  // the field's tag: an endless varint follows
  for (int i = 25; i < 32; ++i) call[i] = '\xff';
  EXPECT_THAT(BatchError(MakeBatch(0, {{.bytes = call, .records = 2}})),
              HasSubstr("malformed field"));
}

// Every kind of damage gives an error or facts, never a crash (run it under
// the address sanitizer, too).
TEST(DecodeBatch, SurvivesRandomDamage) {
  std::mt19937_64 random(20240607);
  std::string plain;
  for (uint32_t i = 1; i < 40; ++i) plain += CallRecords(i);
  for (int round = 0; round < 20'000; ++round) {
    std::string bad = plain;
    for (int flips = 1 + random() % 8; flips > 0; --flips) {
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const auto facts =
        DecodeBatchUntrusted(MakeBatch(0, {{.bytes = bad, .records = 78}}));
    EXPECT_TRUE(facts.ok() || !facts.status().message().empty());
  }
}

}  // namespace
}  // namespace traincheck::server
