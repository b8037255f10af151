#include "server/store/rocksdb_store.h"

#include <sys/statvfs.h>

#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/logging.h"
#include "rocksdb/write_batch.h"
#include "server/store/committer.h"
#include "server/store/data_dir.h"
#include "server/store/rocksdb_database.h"

namespace traincheck {
namespace {

constexpr char kStoreIdKey[] = "store_id";
constexpr absl::Duration kClosePatience = absl::Seconds(1);
constexpr absl::Duration kFirstWritePatience = absl::Seconds(10);

absl::Status FromRocksdb(const rocksdb::Status& status) {
  return status.ok() ? absl::OkStatus()
                     : absl::UnavailableError(status.ToString());
}

std::string_view View(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

class RocksdbStore final : public Store {
 public:
  RocksdbStore(std::string path, std::unique_ptr<RocksdbDatabase> database,
               const RocksdbStoreOptions& options)
      : path_(std::move(path)),
        options_(options),
        database_(std::move(database)),
        committer_(
            [this](const std::vector<const WriteSet*>& sets) {
              return Commit(sets);
            },
            Committer::Options()) {}

  ~RocksdbStore() override { Close(); }

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
    return WriteAndWait(std::move(writes), kFirstWritePatience);
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
    absl::ReaderMutexLock lock(&mutex_);
    if (database_ == nullptr) return NotOpen();
    std::string value;
    const rocksdb::Status status = database_->db().Get(
        rocksdb::ReadOptions(), database_->family(table), key, &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return FromRocksdb(status);
    return std::optional<std::string>(std::move(value));
  }

  absl::Status Scan(Table table, const std::string& from, const std::string& to,
                    const Visitor& visitor) const override {
    absl::ReaderMutexLock lock(&mutex_);
    if (database_ == nullptr) return NotOpen();
    const rocksdb::Slice end(to);
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = &end;
    std::unique_ptr<rocksdb::Iterator> at(
        database_->db().NewIterator(options, database_->family(table)));
    for (at->Seek(from); at->Valid(); at->Next()) {
      if (!visitor(View(at->key()), View(at->value()))) break;
    }
    return FromRocksdb(at->status());
  }

  void Close() override { committer_.Close(kClosePatience); }

 private:
  static absl::Status NotOpen() {
    return absl::UnavailableError(
        "the store is closed after a write error until the disk takes writes "
        "again");
  }

  absl::Status CheckFreeSpace() const {
    struct statvfs disk;
    if (statvfs(path_.c_str(), &disk) != 0) return absl::OkStatus();
    const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
    if (free >= options_.min_free_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk of ", path_, " is full: ", free >> 20, " MiB free, ",
        options_.min_free_bytes >> 20, " MiB needed"));
  }

  // On the commit thread.
  absl::Status Commit(const std::vector<const WriteSet*>& sets) {
    if (absl::Status status = CheckFreeSpace(); !status.ok()) return status;
    if (absl::Status status = ReopenIfBroken(); !status.ok()) return status;
    absl::ReaderMutexLock lock(&mutex_);
    rocksdb::WriteBatch batch;
    for (const WriteSet* set : sets) {
      for (const WriteSet::Entry& entry : set->entries()) {
        batch.Put(database_->family(entry.table), entry.key, entry.value);
      }
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    const rocksdb::Status status = database_->db().Write(options, &batch);
    broken_ = !status.ok();
    return FromRocksdb(status);
  }

  // RocksDB cannot go on with a log that it failed to write to (Resume does
  // not help in 7.8). Opened anew it drops the half-written end, which nobody
  // was told of, and begins another log.
  absl::Status ReopenIfBroken() {
    if (!broken_) return absl::OkStatus();
    absl::MutexLock lock(&mutex_);
    database_.reset();
    rocksdb::Status status;
    database_ = RocksdbDatabase::Open(path_, &status);
    broken_ = database_ == nullptr;
    spdlog::warn("store opened again status=\"{}\"", status.ToString());
    return FromRocksdb(status);
  }

  const std::string path_;
  const RocksdbStoreOptions options_;
  std::string id_;
  bool broken_ = false;  // the commit thread's
  // Held for reading while the database is used, for writing to replace it.
  mutable absl::Mutex mutex_;
  std::unique_ptr<RocksdbDatabase> database_ ABSL_GUARDED_BY(mutex_);
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
    const std::string& dir, const RocksdbStoreOptions& options) {
  if (absl::Status status = PrepareDataDir(dir); !status.ok()) return status;
  rocksdb::Status status;
  std::unique_ptr<RocksdbDatabase> database =
      RocksdbDatabase::Open(DatabasePath(dir), &status);
  if (database == nullptr) return OpenError(dir, status);
  auto store = std::make_unique<RocksdbStore>(DatabasePath(dir),
                                              std::move(database), options);
  if (absl::Status made = store->Initialise(); !made.ok()) return made;
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace traincheck
