#include "server/store/rocksdb_database.h"

#include <array>
#include <cstdarg>
#include <cstdio>

#include "base/logging.h"

namespace traincheck {
namespace {

// In the order of Table.
constexpr std::array<const char*, kTables> kColumnFamilies = {
    "default", "runs", "batches", "sets", "violations", "quarantine"};

// RocksDB's own messages go where ours go. Its log file would be one more
// that a full disk breaks, and RocksDB does not survive that one.
class LogToOurs final : public rocksdb::Logger {
 public:
  LogToOurs() : rocksdb::Logger(rocksdb::WARN_LEVEL) {}

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    spdlog::debug("rocksdb message=\"{}\"", text);
  }
  void LogHeader(const char*, va_list) override {}
};

rocksdb::DBOptions DatabaseOptions() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_background_jobs = 2;
  // A column family that is written seldom would otherwise keep old logs.
  options.max_total_wal_size = 256 << 20;
  options.info_log = std::make_shared<LogToOurs>();
  return options;
}

rocksdb::ColumnFamilyOptions FamilyOptions(Table table) {
  rocksdb::ColumnFamilyOptions options;
  if (table == Table::kBatches || table == Table::kQuarantine) {
    options.enable_blob_files = true;
    options.min_blob_size = 1024;
    options.compression = rocksdb::kNoCompression;
    options.blob_compression_type = rocksdb::kNoCompression;
  } else {
    options.write_buffer_size = 8 << 20;
  }
  return options;
}

}  // namespace

std::unique_ptr<RocksdbDatabase> RocksdbDatabase::Open(
    const std::string& path, rocksdb::Status* status) {
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (int table = 0; table < kTables; ++table) {
    descriptors.emplace_back(kColumnFamilies[table],
                             FamilyOptions(static_cast<Table>(table)));
  }
  std::unique_ptr<RocksdbDatabase> database(new RocksdbDatabase());
  rocksdb::DB* db = nullptr;
  *status = rocksdb::DB::Open(DatabaseOptions(), path, descriptors,
                              &database->families_, &db);
  if (!status->ok()) return nullptr;
  database->db_.reset(db);
  return database;
}

RocksdbDatabase::~RocksdbDatabase() {
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    db_->DestroyColumnFamilyHandle(family);
  }
}

}  // namespace traincheck
