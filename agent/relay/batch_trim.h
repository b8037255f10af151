// Cuts a batch where the server's store begins to lack it: a batch that
// straddles the store's positions would be refused there as a whole.
//
// Threads: pure but for the compressor.
#ifndef TRAINCHECK_AGENT_RELAY_BATCH_TRIM_H_
#define TRAINCHECK_AGENT_RELAY_BATCH_TRIM_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "agent/relay/compressor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

using Slices = google::protobuf::RepeatedPtrField<v1::Slice>;

// What is wanted of one ring.
struct RingRange {
  uint64_t from = 0;
  uint64_t to = UINT64_MAX;
};
// A ring that is not named is wanted as a whole.
using RingRanges = std::map<uint32_t, RingRange>;

// Is all of the slices wanted?
bool LieWithin(const Slices& slices, const RingRanges& ranges);

// Is nothing of them wanted?
bool LieOutside(const Slices& slices, const RingRanges& ranges);

// Of the batch what lies within the ranges; no slices: nothing does.
// DataLoss: the payload is damaged, or a range begins or ends within a record.
[[nodiscard]] absl::StatusOr<v1::Batch> TrimBatch(const v1::Batch& batch,
                                                  const RingRanges& ranges,
                                                  Compressor* compressor);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_BATCH_TRIM_H_
