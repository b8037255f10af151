#include "server/ingest/batch_decoder.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/printable_text.h"
#include "proto/record_reader.h"
#include "server/ingest/limits.h"
#include "server/store/payload.h"

namespace traincheck::server {
namespace {

absl::Status OverLimit(absl::string_view field, uint64_t size, uint64_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("Batch.", field, " has ", size, ", the limit is ", limit));
}

// Do the slices lie in the payload without hole or overlap?
absl::Status CheckSlices(const v1::Batch& batch) {
  const bool quiet = batch.quiet_monotonic_ns() != 0;
  // A batch without records says only that time has passed.
  if (batch.slices().empty() != quiet) {
    return absl::InvalidArgumentError(
        quiet ? "batch has slices and says that the process is quiet"
              : "batch has no slices");
  }
  uint64_t total = 0;
  for (const v1::Slice& slice : batch.slices()) {
    // Wraps around where `to` is below `from`, which the first condition finds.
    // Each size is at most plain_bytes, so the sum cannot overflow.
    const uint64_t size = slice.to() - slice.from();
    if (slice.from() >= slice.to() || size > batch.plain_bytes() ||
        size % kRecordAlignment != 0 || slice.from() % kRecordAlignment != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("slice of ring ", slice.ring(), " has positions ",
                       slice.from(), " to ", slice.to(), " in a batch of ",
                       batch.plain_bytes(), " bytes"));
    }
    total += size;
  }
  if (total != batch.plain_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("slices have ", total,
                                                   " bytes, plain_bytes says ",
                                                   batch.plain_bytes()));
  }
  return absl::OkStatus();
}

void LearnProcess(FieldReader fields, BatchFacts* facts) {
  BatchFacts::Kind kind;
  while (fields.Next()) {
    switch (fields.field()) {
      case Field::kProcessKind:
        // A kind of a later version counts as kOther, the last one.
        kind.kind = static_cast<ProcessKind>(
            std::min<uint64_t>(fields.unsigned_value(),
                               static_cast<uint64_t>(ProcessKind::kOther)));
        break;
      case Field::kWorkerId:
        kind.worker_id = static_cast<uint32_t>(fields.unsigned_value());
        break;
      case Field::kOwnerPid:
        kind.owner_pid = static_cast<uint32_t>(fields.unsigned_value());
        break;
      case Field::kOwnerTicks:
        kind.owner_start_ticks = fields.unsigned_value();
        break;
      default:
        break;
    }
  }
  // A definition without a kind leaves what Hello said of the process.
  if (kind.kind != ProcessKind::kUnknown) facts->kind = kind;
}

// Marks are the skeleton of a training: steps, plans and ends. The daemon keeps
// the last ones in its books, so that lists and status need no batches.
void LearnMark(const MarkRecord& mark, BatchFacts* facts) {
  switch (static_cast<MarkKind>(mark.header.flags)) {
    case MarkKind::kStepClosed:
      // Records of a ring are in the order in which they were written.
      if (!facts->first_step.has_value()) facts->first_step = mark.value;
      facts->last_step = mark.value;
      break;
    case MarkKind::kPlanApplied:
      facts->plan_version = mark.value;
      // The step that had closed by then in this batch; unset, the books of the
      // process know it (LearnPlan).
      facts->plan_after_step = facts->last_step;
      break;
    case MarkKind::kCleanExit:
      facts->clean_exit = true;
      break;
    default:
      break;
  }
}

void LearnUncleanExit(const RecordReader& record, BatchFacts* facts) {
  // The name of a class comes from the user's program and goes into the books
  // and into words for people.
  constexpr size_t kMaxClassBytes = 256;
  const uint64_t cause = record.Get<MarkRecord>().value;
  // A later version's cause is an unknown one.
  if (cause == 0 || cause > kMaxExitCause) return;
  facts->exit_cause = static_cast<uint8_t>(cause);
  FieldReader fields = record.Fields();
  while (fields.Next()) {
    if (fields.field() != Field::kText) continue;
    facts->exit_exception =
        EscapeUnprintable(fields.bytes_value().substr(0, kMaxClassBytes));
  }
}

// An agent's nonce has 32 hexadecimal digits; whatever else stands there names
// no start.
constexpr size_t kMaxStartBytes = 64;

void LearnPlace(const RecordReader& record, BatchFacts* facts) {
  facts->place = record.Get<PlaceRecord>();
  // The start that belongs to this place: one of an earlier record is not its
  // own.
  facts->start.clear();
  FieldReader fields = record.Fields();
  while (fields.Next()) {
    if (fields.field() != Field::kStart) continue;
    const std::string_view start = fields.bytes_value();
    const bool good = start.size() <= kMaxStartBytes &&
                      std::all_of(start.begin(), start.end(), [](char c) {
                        return absl::ascii_isxdigit(c);
                      });
    if (good) facts->start = std::string(start);
  }
}

void LearnRecord(const RecordReader& records, uint32_t ring,
                 BatchFacts* facts) {
  switch (records.type()) {
    case RecordType::kMark:
      LearnMark(records.Get<MarkRecord>(), facts);
      if (records.header().flags ==
          static_cast<uint8_t>(MarkKind::kUncleanExit)) {
        LearnUncleanExit(records, facts);
      }
      break;
    case RecordType::kPlace:
      LearnPlace(records, facts);
      break;
    case RecordType::kProcessDef:
      LearnProcess(records.Fields(), facts);
      break;
    case RecordType::kDrops:
      // The record has the total of its ring, so the last one counts.
      facts->dropped[ring] = records.Get<DropsRecord>().dropped_records;
      break;
    default:
      break;
  }
}

absl::Status BadSlice(const v1::Slice& slice, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("slice of ring ", slice.ring(),
                                                 " from position ",
                                                 slice.from(), ": ", what));
}

absl::Status DecodeSlice(const v1::Slice& slice, std::string_view bytes,
                         BatchFacts* facts) {
  uint32_t count = 0;
  RecordReader records(bytes);
  while (records.Next()) {
    // Padding fills up the end of a ring; the sender's count leaves it out as
    // well.
    if (records.type() == RecordType::kPadding) continue;
    ++count;
    // A newer agent's records are stored all the same: a later daemon may read
    // them.
    if (!records.known()) ++facts->unknown_types;
    // All of them, though the daemon needs few: what is stored has been looked
    // at whole.
    FieldReader fields = records.Fields();
    while (fields.Next()) {
    }
    if (!fields.ok()) {
      return BadSlice(slice, absl::StrCat("record at byte ", records.offset(),
                                          ": malformed field"));
    }
    LearnRecord(records, slice.ring(), facts);
  }
  if (!records.ok()) return BadSlice(slice, records.error());
  // The books count records by this number, without reading them again.
  if (count != slice.records()) {
    return BadSlice(slice,
                    absl::StrCat("holds ", count, " records, its count says ",
                                 slice.records()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatchLimits(const v1::Batch& batch) {
  if (batch.payload().size() > kMaxPayloadBytes) {
    return OverLimit("payload bytes", batch.payload().size(), kMaxPayloadBytes);
  }
  if (batch.plain_bytes() > kMaxPlainBytes) {
    return OverLimit("plain_bytes", batch.plain_bytes(), kMaxPlainBytes);
  }
  if (batch.slices_size() > kMaxSlicesInBatch) {
    return OverLimit("slices", batch.slices_size(), kMaxSlicesInBatch);
  }
  if (batch.number() > kMaxBatchNumber) {
    return OverLimit("number", batch.number(), kMaxBatchNumber);
  }
  for (const v1::Slice& slice : batch.slices()) {
    if (slice.ring() > kMaxRing) {
      return OverLimit("slices.ring", slice.ring(), kMaxRing);
    }
  }
  return absl::OkStatus();
}

// Runs on the thread that takes the message (one of gRPC's, or the daemon's
// tick) and without the registry's lock, which all streams share.
absl::StatusOr<BatchFacts> DecodeBatchUntrusted(const v1::Batch& batch) {
  if (absl::Status status = CheckSlices(batch); !status.ok()) return status;
  absl::StatusOr<std::string> plain =
      DecompressUntrusted(batch.payload(), batch.plain_bytes());
  if (!plain.ok()) return plain.status();
  // One for all slices: a bad slice anywhere quarantines the whole batch, and
  // nothing of it is learned.
  BatchFacts facts;
  std::string_view rest = *plain;
  for (const v1::Slice& slice : batch.slices()) {
    const size_t size = slice.to() - slice.from();
    absl::Status status = DecodeSlice(slice, rest.substr(0, size), &facts);
    if (!status.ok()) return status;
    rest.remove_prefix(size);
  }
  return facts;
}

}  // namespace traincheck::server
