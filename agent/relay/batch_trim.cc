#include "agent/relay/batch_trim.h"

#include <zstd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "proto/record_reader.h"

namespace traincheck::agent {
namespace {

RingRange RangeOf(const RingRanges& ranges, uint32_t ring) {
  const auto found = ranges.find(ring);
  return found == ranges.end() ? RingRange() : found->second;
}

// Fails on damage only: the batch comes from this relay's memory or from a
// spool file that another relay wrote.
absl::StatusOr<std::string> Decompress(const v1::Batch& batch) {
  if (batch.plain_bytes() > kMaxBatchPlainBytes) {
    return absl::DataLossError(absl::StrCat("a batch of ", batch.plain_bytes(),
                                            " plain bytes, the limit is ",
                                            kMaxBatchPlainBytes));
  }
  // Allocated behind the check: the number may come from a damaged spool file.
  std::string plain(batch.plain_bytes(), '\0');
  const size_t size =
      ZSTD_decompress(plain.data(), plain.size(), batch.payload().data(),
                      batch.payload().size());
  if (ZSTD_isError(size) || size != plain.size()) {
    return absl::DataLossError("the payload of a batch is damaged");
  }
  return plain;
}

// The part of the slice within the range, its records counted. Nothing: no
// record begins at one of its ends.
std::optional<v1::Slice> Cut(const v1::Slice& slice, const RingRange& range,
                             const std::string& bytes) {
  v1::Slice part;
  part.set_ring(slice.ring());
  part.set_from(std::max<uint64_t>(slice.from(), range.from));
  part.set_to(std::min<uint64_t>(slice.to(), range.to));
  // Both ends must lie between records: the server looks at each record of a
  // batch, and would quarantine one that begins or ends within one.
  bool begins = part.from() == slice.from();
  bool ends = part.to() == slice.to();
  uint32_t count = 0;
  RecordReader records(bytes);
  while (records.Next()) {
    const uint64_t position = slice.from() + records.offset();
    begins |= position == part.from();
    ends |= position == part.to();
    const bool inside = position >= part.from() && position < part.to();
    if (inside && records.type() != RecordType::kPadding) ++count;
  }
  if (!records.ok() || !begins || !ends) return std::nullopt;
  part.set_records(count);
  return part;
}

}  // namespace

// The usual answers, without looking at a payload: only a batch for which
// neither holds has to be cut.
bool LieWithin(const Slices& slices, const RingRanges& ranges) {
  return std::all_of(slices.begin(), slices.end(), [&](const v1::Slice& slice) {
    const RingRange range = RangeOf(ranges, slice.ring());
    return slice.from() >= range.from && slice.to() <= range.to;
  });
}

bool LieOutside(const Slices& slices, const RingRanges& ranges) {
  return std::all_of(slices.begin(), slices.end(), [&](const v1::Slice& slice) {
    const RingRange range = RangeOf(ranges, slice.ring());
    return slice.to() <= range.from || slice.from() >= range.to;
  });
}

absl::StatusOr<v1::Batch> TrimBatch(const v1::Batch& batch,
                                    const RingRanges& ranges,
                                    Compressor* compressor) {
  const absl::StatusOr<std::string> plain = Decompress(batch);
  if (!plain.ok()) return plain.status();
  v1::Batch trimmed;
  trimmed.set_number(batch.number());
  // Slices lie in the payload one behind the other, in their order.
  std::string left;
  uint64_t at = 0;
  for (const v1::Slice& slice : batch.slices()) {
    const uint64_t size = slice.to() - slice.from();
    if (slice.to() < slice.from() || size > plain->size() - at) {
      return absl::DataLossError("the slices of a batch exceed its payload");
    }
    // The copy of one slice begins at an aligned address, as RecordReader needs
    // it.
    const std::string bytes = plain->substr(at, size);
    at += size;
    const RingRange range = RangeOf(ranges, slice.ring());
    // Cut needs a range that overlaps the slice: otherwise its two ends would
    // lie the wrong way round.
    if (slice.to() <= range.from || slice.from() >= range.to) continue;
    const std::optional<v1::Slice> part = Cut(slice, range, bytes);
    if (!part.has_value()) {
      return absl::DataLossError(absl::StrCat(
          "ring ", slice.ring(), " cannot be cut at position ", range.from,
          " or ", range.to, ": no record begins there"));
    }
    *trimmed.add_slices() = *part;
    left.append(bytes, part->from() - slice.from(), part->to() - part->from());
  }
  trimmed.set_plain_bytes(static_cast<uint32_t>(left.size()));
  if (!left.empty()) trimmed.set_payload(compressor->Compress(left));
  return trimmed;
}

}  // namespace traincheck::agent
