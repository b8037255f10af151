// An open RocksDB with our column families and options. The only files that
// know RocksDB's types are this one, its source and test, and rocksdb_store.cc.
//
// Threads: as rocksdb::DB: all methods on any thread.
#ifndef TRAINCHECK_SERVER_STORE_ROCKSDB_DATABASE_H_
#define TRAINCHECK_SERVER_STORE_ROCKSDB_DATABASE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/db.h"
#include "server/store/store.h"

namespace traincheck::server {

class RocksdbDatabase {
 public:
  // Memory and descriptors do not grow with what is stored.
  static constexpr int kMaxOpenFiles = 256;
  static constexpr size_t kBlockCacheBytes = 16 << 20;

  // What to do about a log that is damaged before its end.
  enum class DamagedLog { kRefuse, kCutOff };

  // Null, with *status set, if it cannot be opened.
  static std::unique_ptr<RocksdbDatabase> Open(const std::string& path,
                                               DamagedLog damaged_log,
                                               rocksdb::Status* status);
  ~RocksdbDatabase();
  RocksdbDatabase(const RocksdbDatabase&) = delete;
  RocksdbDatabase& operator=(const RocksdbDatabase&) = delete;

  // Drops what was deleted between the keys from disk: index entries, blobs and
  // the logs that still hold them. Blobs lie in files together with those of
  // others; `may_copy` those out so that the files can go. Ends early once
  // *cancel is true.
  rocksdb::Status Reclaim(const std::string& from, const std::string& to,
                          bool may_copy, std::atomic<bool>* cancel);

  // A consistent copy in the new folder `path`, hard links where possible.
  rocksdb::Status Checkpoint(const std::string& path);

  rocksdb::DB& db() { return *db_; }
  rocksdb::ColumnFamilyHandle* family(Table table) const {
    return families_[static_cast<size_t>(table)];
  }

 private:
  RocksdbDatabase() = default;

  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_ROCKSDB_DATABASE_H_
