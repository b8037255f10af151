#include "server/store/rocksdb_store.h"

#include <sys/stat.h>

#include <array>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "base/logging.h"
#include "rocksdb/db.h"
#include "rocksdb/write_batch.h"
#include "server/store/committer.h"
#include "server/store/data_dir.h"

namespace traincheck {
namespace {

constexpr char kStoreIdKey[] = "store_id";
constexpr absl::Duration kClosePatience = absl::Seconds(1);

// In the order of Table.
constexpr std::array<const char*, kTables> kColumnFamilies = {
    "default", "runs", "batches", "sets", "violations", "quarantine"};

absl::Status FromRocksdb(const rocksdb::Status& status) {
  return status.ok() ? absl::OkStatus()
                     : absl::UnavailableError(status.ToString());
}

std::string_view View(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

rocksdb::DBOptions DatabaseOptions() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_background_jobs = 2;
  // Recovery reads the WAL; with six column families a quiet one would
  // otherwise keep old logs for ever.
  options.max_total_wal_size = 256 << 20;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
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

class RocksdbStore final : public Store {
 public:
  RocksdbStore(std::unique_ptr<rocksdb::DB> db,
               std::vector<rocksdb::ColumnFamilyHandle*> families)
      : db_(std::move(db)),
        families_(std::move(families)),
        committer_(
            [this](const std::vector<const WriteSet*>& sets) {
              return Commit(sets);
            },
            Committer::Options()) {}

  ~RocksdbStore() override {
    Close();
    for (rocksdb::ColumnFamilyHandle* family : families_) {
      db_->DestroyColumnFamilyHandle(family);
    }
  }

  const std::string& id() const override { return id_; }

  // Draws the id of a new store. Called once, before the store is handed out.
  absl::Status Initialise() {
    absl::StatusOr<std::optional<std::string>> id =
        Get(Table::kMeta, kStoreIdKey);
    if (!id.ok()) return id.status();
    if (id->has_value()) {
      id_ = **id;
      return absl::OkStatus();
    }
    std::random_device random;
    id_ = absl::StrFormat("%08x%08x", random(), random());
    WriteSet writes;
    writes.Put(Table::kMeta, kStoreIdKey, id_);
    return WriteAndWait(std::move(writes), absl::Seconds(10));
  }

  void Write(WriteSet writes, Done done) override {
    committer_.Add(std::move(writes), std::move(done));
  }

  absl::Status WriteAndWait(WriteSet writes, absl::Duration patience) override {
    // Shared with the commit thread, which may be done after we gave up.
    auto durable = std::make_shared<absl::Notification>();
    Write(std::move(writes), [durable] { durable->Notify(); });
    if (durable->WaitForNotificationWithTimeout(patience)) {
      return absl::OkStatus();
    }
    const absl::Status last = committer_.LastError();
    return absl::UnavailableError(
        absl::StrCat("not written after ", absl::FormatDuration(patience), ": ",
                     last.ok() ? "the disk is slow" : last.message()));
  }

  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const override {
    std::string value;
    const rocksdb::Status status =
        db_->Get(rocksdb::ReadOptions(), Family(table), key, &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return FromRocksdb(status);
    return std::optional<std::string>(std::move(value));
  }

  absl::Status Scan(Table table, const std::string& from, const std::string& to,
                    const Visitor& visitor) const override {
    const rocksdb::Slice end(to);
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = &end;
    std::unique_ptr<rocksdb::Iterator> at(
        db_->NewIterator(options, Family(table)));
    for (at->Seek(from); at->Valid(); at->Next()) {
      if (!visitor(View(at->key()), View(at->value()))) break;
    }
    return FromRocksdb(at->status());
  }

  void Close() override { committer_.Close(kClosePatience); }

 private:
  rocksdb::ColumnFamilyHandle* Family(Table table) const {
    return families_[static_cast<size_t>(table)];
  }

  absl::Status Commit(const std::vector<const WriteSet*>& sets) {
    rocksdb::WriteBatch batch;
    for (const WriteSet* set : sets) {
      for (const WriteSet::Entry& entry : set->entries()) {
        batch.Put(Family(entry.table), entry.key, entry.value);
      }
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    const rocksdb::Status status = db_->Write(options, &batch);
    // After an error (a full disk) RocksDB refuses writes until it is told to
    // go on; it then starts a new log, so that no half-written one is trusted.
    if (!status.ok()) db_->Resume().PermitUncheckedError();
    return FromRocksdb(status);
  }

  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> families_;
  std::string id_;
  Committer committer_;  // last: its thread uses the others
};

absl::Status OpenError(const std::string& dir, const rocksdb::Status& status) {
  const std::string text = status.ToString();
  if (absl::StrContains(text, "lock")) {
    return absl::FailedPreconditionError(
        absl::StrCat("data directory \"", dir,
                     "\" is in use by another traincheckd: stop that one or "
                     "name another directory (",
                     text, ")"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "data directory \"", dir, "\": cannot open its database: ", text));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenRocksdbStore(
    const std::string& dir) {
  if (absl::Status status = PrepareDataDir(dir); !status.ok()) return status;
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (int table = 0; table < kTables; ++table) {
    descriptors.emplace_back(kColumnFamilies[table],
                             FamilyOptions(static_cast<Table>(table)));
  }
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(
      DatabaseOptions(), DatabasePath(dir), descriptors, &families, &db);
  if (!status.ok()) return OpenError(dir, status);
  auto store = std::make_unique<RocksdbStore>(std::unique_ptr<rocksdb::DB>(db),
                                              std::move(families));
  if (absl::Status made = store->Initialise(); !made.ok()) return made;
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace traincheck
