// Stored batches in order, as checker and inference read them.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_STORE_BATCH_READER_H_
#define TRAINCHECK_SERVER_STORE_BATCH_READER_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "invariants/trace/stored_batch.h"
#include "server/store/keys.h"
#include "server/store/store.h"

namespace traincheck::server {

// One value of the table of batches. InvalidArgument, saying what is wrong.
[[nodiscard]] absl::StatusOr<StoredBatch> DecodeStored(std::string_view value);

// Visits the batches of one process from number `from.batch` on and below
// number `to`, until `visitor` returns false. DataLoss, naming the batch, if
// one does not decode (it did when it was stored).
[[nodiscard]] absl::Status ReadBatches(
    const Store& store, const BatchId& from, uint64_t to,
    const std::function<bool(const StoredBatch&)>& visitor);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_BATCH_READER_H_
