// Store on RocksDB.
// A backup that is opened for the first time gets an id of its own.
//
// Threads: as Store.
#ifndef TRAINCHECK_SERVER_STORE_ROCKSDB_STORE_H_
#define TRAINCHECK_SERVER_STORE_ROCKSDB_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace traincheck::server {

struct RocksdbStoreOptions {
  // With less room than this on the disk nothing is written: RocksDB needs
  // some to flush what is in the log already.
  uint64_t min_free_bytes = 128 << 20;
  // Opens a database whose log is damaged before its end by cutting the log
  // off there. What was acknowledged behind it is lost, so the store then
  // takes a new id, which makes relays send again what they still have.
  bool accept_loss = false;
};

// Opens or makes the data directory `dir` and locks it. FailedPrecondition
// with what is wrong and what to do: not ours, newer, not writable, in use.
// DataLoss, naming file and choices, if it is damaged.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Store>> OpenRocksdbStore(
    const std::string& dir, const RocksdbStoreOptions& options = {});

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_ROCKSDB_STORE_H_
