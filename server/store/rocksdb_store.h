// Store on RocksDB.
//
// Threads: as Store.
#ifndef TRAINCHECK_SERVER_STORE_ROCKSDB_STORE_H_
#define TRAINCHECK_SERVER_STORE_ROCKSDB_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace traincheck {

// Opens or makes the data directory `dir` and locks it. FailedPrecondition
// with what is wrong and what to do: not ours, newer, not writable, in use.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Store>> OpenRocksdbStore(
    const std::string& dir);

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_STORE_ROCKSDB_STORE_H_
