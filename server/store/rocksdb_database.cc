#include "server/store/rocksdb_database.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/logging.h"
#include "rocksdb/cache.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/checkpoint.h"

namespace traincheck::server {
namespace {

// In the order of Table.
constexpr std::array<const char*, kTables> kColumnFamilies = {
    "default", "runs", "batches", "sets", "violations", "quarantine"};

// Of the oldest blob files; beyond it RocksDB copies what is alive by itself.
constexpr double kGarbageShare = 0.5;
// Of the table files of batches, which hold keys and the places of blobs, not
// the batches themselves.
constexpr uint64_t kKeyFileBytes = 2 << 20;

// RocksDB's own messages go where ours go. Its log file would be one more
// that a full disk breaks, and RocksDB does not survive that one.
class LogToOurs final : public rocksdb::Logger {
 public:
  LogToOurs() : rocksdb::Logger(rocksdb::WARN_LEVEL) {}

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    // The one place where RocksDB tells which log it finds damaged.
    if (std::string_view(text).find(": dropping ") != std::string_view::npos) {
      absl::MutexLock lock(&mutex_);
      damage_ = text;
    }
    spdlog::debug("rocksdb message=\"{}\"", text);
  }
  void LogHeader(const char*, va_list) override {}

  std::string damage() const {
    absl::MutexLock lock(&mutex_);
    return damage_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string damage_ ABSL_GUARDED_BY(mutex_);
};

rocksdb::DBOptions DatabaseOptions(RocksdbDatabase::DamagedLog damaged_log) {
  rocksdb::DBOptions options;
  // RocksDB's default cuts a damaged log off at the damage and opens: what had
  // been acknowledged behind it would be gone without a word. This mode takes
  // a log whose end is missing (nobody was told of that) and no other.
  options.wal_recovery_mode =
      damaged_log == RocksdbDatabase::DamagedLog::kCutOff
          ? rocksdb::WALRecoveryMode::kPointInTimeRecovery
          : rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_background_jobs = 2;
  // Its default keeps every file open that was ever read or written: a
  // descriptor and tens of KiB for each 2 MiB that are stored.
  options.max_open_files = RocksdbDatabase::kMaxOpenFiles;
  // A column family that is written seldom would otherwise keep old logs.
  options.max_total_wal_size = 256 << 20;
  return options;
}

// What is read often of all tables, and their indexes. RocksDB's default is one
// for each table, and indexes in memory for as long as the file is open.
std::shared_ptr<rocksdb::TableFactory> Tables() {
  rocksdb::BlockBasedTableOptions options;
  options.block_cache = rocksdb::NewLRUCache(RocksdbDatabase::kBlockCacheBytes);
  options.cache_index_and_filter_blocks = true;
  return std::shared_ptr<rocksdb::TableFactory>(
      rocksdb::NewBlockBasedTableFactory(options));
}

rocksdb::ColumnFamilyOptions FamilyOptions(
    Table table, const std::shared_ptr<rocksdb::TableFactory>& tables) {
  rocksdb::ColumnFamilyOptions options;
  options.table_factory = tables;
  // What is not on disk in tables yet lies in memory, and in the log that is
  // read at the next start: small buffers keep both small.
  options.write_buffer_size = 8 << 20;
  if (table == Table::kBatches || table == Table::kQuarantine) {
    options.enable_blob_files = true;
    // Smaller values stay in the tables.
    options.min_blob_size = 1024;
    // Payloads are zstd frames already.
    options.compression = rocksdb::kNoCompression;
    options.blob_compression_type = rocksdb::kNoCompression;
    options.enable_blob_garbage_collection = true;
    options.blob_garbage_collection_force_threshold = kGarbageShare;
    // Keys are few and small. Small files of them keep short what Reclaim
    // copies of the neighbours of a deleted run.
    options.target_file_size_base = kKeyFileBytes;
  }
  return options;
}

}  // namespace

std::unique_ptr<RocksdbDatabase> RocksdbDatabase::Open(
    const std::string& path, DamagedLog damaged_log, rocksdb::Status* status) {
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  const std::shared_ptr<rocksdb::TableFactory> tables = Tables();
  for (int table = 0; table < kTables; ++table) {
    descriptors.emplace_back(kColumnFamilies[table],
                             FamilyOptions(static_cast<Table>(table), tables));
  }
  std::unique_ptr<RocksdbDatabase> database(new RocksdbDatabase());
  const auto log = std::make_shared<LogToOurs>();
  rocksdb::DBOptions options = DatabaseOptions(damaged_log);
  options.info_log = log;
  rocksdb::DB* db = nullptr;
  *status =
      rocksdb::DB::Open(options, path, descriptors, &database->families_, &db);
  // The status of an open says that there is damage, and only the log says in
  // which file.
  if (status->IsCorruption()) {
    *status = rocksdb::Status::Corruption(status->ToString(), log->damage());
  }
  if (!status->ok()) return nullptr;
  database->db_.reset(db);
  return database;
}

rocksdb::Status RocksdbDatabase::Reclaim(const std::string& from,
                                         const std::string& to, bool may_copy,
                                         std::atomic<bool>* cancel) {
  // Also the tables that are not compacted: a log goes once no table needs it.
  rocksdb::Status status = db_->Flush(rocksdb::FlushOptions(), families_);
  rocksdb::CompactRangeOptions options;
  // RocksDB's own compactions go on meanwhile.
  options.exclusive_manual_compaction = false;
  // Without a compaction filter the bottommost level is left out by default.
  options.bottommost_level_compaction =
      rocksdb::BottommostLevelCompaction::kForceOptimized;
  options.blob_garbage_collection_policy =
      may_copy ? rocksdb::BlobGarbageCollectionPolicy::kForce
               : rocksdb::BlobGarbageCollectionPolicy::kDisable;
  // Of all blob files, however young they are.
  options.blob_garbage_collection_age_cutoff = 1;
  options.canceled = cancel;
  const rocksdb::Slice begin(from);
  const rocksdb::Slice end(to);
  for (const Table table : {Table::kBatches, Table::kQuarantine}) {
    if (!status.ok()) break;
    status = db_->CompactRange(options, family(table), &begin, &end);
  }
  return status;
}

rocksdb::Status RocksdbDatabase::Checkpoint(const std::string& path) {
  rocksdb::Checkpoint* made = nullptr;
  rocksdb::Status status = rocksdb::Checkpoint::Create(db_.get(), &made);
  if (!status.ok()) return status;
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  return checkpoint->CreateCheckpoint(path);
}

RocksdbDatabase::~RocksdbDatabase() {
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    // Before the database, which must not close while handles of it are there.
    db_->DestroyColumnFamilyHandle(family);
  }
}

}  // namespace traincheck::server
