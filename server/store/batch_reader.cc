#include "server/store/batch_reader.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/traincheck/v1/ingest.pb.h"
#include "server/store/payload.h"

namespace traincheck::server {

// The batch was checked when it came (DecodeBatchUntrusted), so an error here
// means damage on disk.
absl::StatusOr<StoredBatch> DecodeStored(std::string_view value) {
  v1::Batch stored;
  if (!stored.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return absl::InvalidArgumentError("it is not a Batch");
  }
  absl::StatusOr<std::string> plain =
      DecompressUntrusted(stored.payload(), stored.plain_bytes());
  if (!plain.ok()) return plain.status();
  StoredBatch batch;
  batch.number = stored.number();
  for (const v1::Slice& slice : stored.slices()) {
    batch.slices.push_back(
        {slice.ring(), slice.from(), slice.to(), slice.records()});
  }
  batch.plain = *std::move(plain);
  // 0 unless the batch only reports that its process has been quiet until this
  // moment of its own monotonic clock.
  batch.quiet_us = stored.quiet_monotonic_ns() / 1000;
  return batch;
}

absl::Status ReadBatches(
    const Store& store, const BatchId& from, uint64_t to,
    const std::function<bool(const StoredBatch&)>& visitor) {
  // The visitor of a scan can only stop it. What was wrong is kept here.
  absl::Status bad;
  const absl::Status scanned = store.Scan(
      Table::kBatches, BatchKey(from), BatchKey({from.run, from.process, to}),
      [&](std::string_view key, std::string_view value) {
        absl::StatusOr<StoredBatch> batch = DecodeStored(value);
        if (batch.ok()) return visitor(*batch);
        BatchId id;
        // The number from the key, since the value cannot be trusted to have
        // it.
        ParseBatchKey(key, &id);
        bad = absl::DataLossError(absl::StrCat("stored batch ", id.batch,
                                               " of process ", id.process, ": ",
                                               batch.status().message()));
        return false;
      });
  // A scan that `bad` has ended early is itself OK.
  if (scanned.ok()) return bad;
  return absl::Status(
      scanned.code(),
      absl::StrCat("batches of process ", from.process, " from ", from.batch,
                   " on: ", scanned.message()));
}

}  // namespace traincheck::server
