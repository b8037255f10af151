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
#include "base/printable_text.h"
#include "rocksdb/write_batch.h"
#include "server/store/committer.h"
#include "server/store/data_dir.h"
#include "server/store/rocksdb_database.h"

namespace traincheck::server {
namespace {

constexpr char kStoreIdKey[] = "store_id";
// For what is queued when the daemon stops. What does not get to disk in that
// time was never acknowledged, so relays still have it.
constexpr absl::Duration kClosePatience = absl::Seconds(1);
// Reclaim copies live blobs out of the files that it frees, which takes room
// before it gives any.
constexpr uint64_t kRoomToCopy = uint64_t{1} << 30;
// For the id of a new store. A start that waits longer has a disk that takes no
// writes, and says so.
constexpr absl::Duration kFirstWritePatience = absl::Seconds(10);

// Callers distinguish two cases alone: damage, which stays, and everything
// else.
absl::Status FromRocksdb(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsCorruption()) {
    return absl::DataLossError(
        absl::StrCat("the store is damaged: ", status.ToString(),
                     ". Check the disk; put a backup in its place or delete "
                     "the runs concerned"));
  }
  // Everything else may pass: callers keep what they have and try again.
  return absl::UnavailableError(status.ToString());
}

void Apply(const WriteSet::Entry& entry, rocksdb::ColumnFamilyHandle* family,
           rocksdb::WriteBatch* batch) {
  switch (entry.change) {
    case WriteSet::Change::kPut:
      batch->Put(family, entry.key, entry.value);
      break;
    case WriteSet::Change::kDelete:
      batch->Delete(family, entry.key);
      break;
    case WriteSet::Change::kDeleteRange:
      batch->DeleteRange(family, entry.key, entry.value);
      break;
  }
}

std::string_view View(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

class RocksdbStore final : public Store {
 public:
  RocksdbStore(std::string dir, std::unique_ptr<RocksdbDatabase> database,
               const RocksdbStoreOptions& options)
      : dir_(std::move(dir)),
        path_(DatabasePath(dir_)),
        options_(options),
        database_(std::move(database)),
        committer_(
            [this](const std::vector<const WriteSet*>& sets) {
              return Commit(sets);
            },
            Committer::Options()) {}

  ~RocksdbStore() override { Close(); }

  const std::string& id() const override { return id_; }

  // Draws the id of a new store, or of one that is to have a new one. Called
  // once, before the store is handed out.
  absl::Status Initialise(bool wants_new_id) {
    absl::StatusOr<std::optional<std::string>> id =
        Get(Table::kMeta, kStoreIdKey);
    if (!id.ok()) return id.status();
    if (id->has_value() && !wants_new_id) {
      id_ = **id;
      return absl::OkStatus();
    }
    std::random_device random;
    id_ = absl::StrFormat("%08x%08x", random(), random());
    if (id->has_value()) {
      spdlog::warn(
          "store has a new id, relays send again what they still have "
          "store={} before={}",
          id_, **id);
    }
    WriteSet writes;
    writes.Put(Table::kMeta, kStoreIdKey, id_);
    // Waited for: relays that were sent an id which a crash then loses would
    // take the next one for another store and send all again.
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
    if (!status.ok()) return Unreadable(status, table);
    return std::optional<std::string>(std::move(value));
  }

  absl::Status Scan(Table table, const std::string& from, const std::string& to,
                    const Visitor& visitor) const override {
    absl::ReaderMutexLock lock(&mutex_);
    if (database_ == nullptr) return NotOpen();
    // The lock is held to the end: an iterator must not outlive its database,
    // which the commit thread may replace.
    const rocksdb::Slice end(to);
    rocksdb::ReadOptions options;
    // RocksDB stops there by itself, and reads no block and no deleted key
    // behind the range.
    options.iterate_upper_bound = &end;
    std::unique_ptr<rocksdb::Iterator> at(
        database_->db().NewIterator(options, database_->family(table)));
    for (at->Seek(from); at->Valid(); at->Next()) {
      if (!visitor(View(at->key()), View(at->value()))) break;
    }
    if (at->status().ok()) return absl::OkStatus();
    return Unreadable(at->status(), table);
  }

  // The error names the table and the path, since RocksDB itself names a
  // damaged table file but not a damaged blob file.
  absl::Status Unreadable(const rocksdb::Status& status, Table table) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const absl::Status error = FromRocksdb(status);
    return absl::Status(
        error.code(),
        absl::StrCat("reading ", database_->family(table)->GetName(), " in ",
                     path_, ": ", error.message()));
  }

  absl::Status Erase(const WriteSet& deletions) override {
    absl::ReaderMutexLock lock(&mutex_);
    if (database_ == nullptr) return NotOpen();
    // Past the queue and without a look at the free room: a deletion makes
    // some.
    return FromRocksdb(WriteSynced({&deletions}));
  }

  absl::Status Reclaim(const std::string& from, const std::string& to,
                       std::atomic<bool>* cancel) override {
    const std::shared_ptr<RocksdbDatabase> database = ForLong();
    if (database == nullptr) return NotOpen();
    // Copying needs room; without it what is wholly dead still goes.
    const bool may_copy = FreeBytes().value_or(0) >= kRoomToCopy;
    const rocksdb::Status status =
        database->Reclaim(from, to, may_copy, cancel);
    if (status.IsIncomplete() || *cancel) {
      return absl::CancelledError("stopped before all room was given back");
    }
    return FromRocksdb(status);
  }

  absl::StatusOr<uint64_t> Backup(const std::string& folder) override {
    const std::shared_ptr<RocksdbDatabase> database = ForLong();
    if (database == nullptr) return NotOpen();
    absl::Status made =
        MakeBackup(dir_, folder, id_, [&](const std::string& path) {
          return FromRocksdb(database->Checkpoint(path));
        });
    if (!made.ok()) return made;
    const uint64_t bytes = BytesOf(folder);
    spdlog::info("backup made folder={} bytes={}", QuotePrintable(folder),
                 bytes);
    return bytes;
  }

  // Answers while the database is closed, too. It walks over all files of the
  // directory, so it is for status and metrics and not for each batch.
  StoreHealth Health() const override {
    return {.stored_bytes = BytesOf(dir_),
            .free_bytes = FreeBytes().value_or(0),
            .error = committer_.LastError()};
  }

  void Close() override { committer_.Close(kClosePatience); }

 private:
  static absl::Status NotOpen() {
    return absl::UnavailableError(
        "the store is closed after a write error until the disk takes writes "
        "again");
  }

  // For calls that take minutes: they keep the database and not the lock, which
  // the commit thread may want, and behind which all readers then wait. Null:
  // it is not open.
  std::shared_ptr<RocksdbDatabase> ForLong() const {
    absl::ReaderMutexLock lock(&mutex_);
    return database_;
  }

  // nullopt: the disk does not say.
  std::optional<uint64_t> FreeBytes() const {
    struct statvfs disk;
    if (statvfs(path_.c_str(), &disk) != 0) return std::nullopt;
    return uint64_t{disk.f_bavail} * disk.f_frsize;
  }

  absl::Status CheckFreeSpace() const {
    const std::optional<uint64_t> free = FreeBytes();
    // A disk that does not say how much is free is not taken for a full one:
    // the write itself shows it.
    if (free.value_or(UINT64_MAX) >= options_.min_free_bytes) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk of ", path_, " is full: ", *free >> 20, " MiB free, ",
        options_.min_free_bytes >> 20, " MiB needed"));
  }

  // Makes one group durable. Runs on the commit thread, which is the only one
  // that touches broken_.
  absl::Status Commit(const std::vector<const WriteSet*>& sets) {
    // Before the database is opened again, which writes, too.
    if (absl::Status status = CheckFreeSpace(); !status.ok()) return status;
    if (absl::Status status = ReopenIfBroken(); !status.ok()) return status;
    // Shared with the other readers: a write replaces nothing that they use.
    // Only ReopenIfBroken takes the lock alone.
    absl::ReaderMutexLock lock(&mutex_);
    const rocksdb::Status status = WriteSynced(sets);
    broken_ = !status.ok();
    return FromRocksdb(status);
  }

  rocksdb::Status WriteSynced(const std::vector<const WriteSet*>& sets)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    rocksdb::WriteBatch batch;
    for (const WriteSet* set : sets) {
      for (const WriteSet::Entry& entry : set->entries()) {
        Apply(entry, database_->family(entry.table), &batch);
      }
    }
    rocksdb::WriteOptions options;
    // Relays let go of what is acknowledged, so it must survive a power
    // failure.
    options.sync = true;
    return database_->db().Write(options, &batch);
  }

  // RocksDB cannot go on with a log that it failed to write to (Resume does not
  // help in 7.8). When it is opened again it drops the half-written end, none
  // of which was acknowledged, and begins another log.
  absl::Status ReopenIfBroken() {
    if (!broken_) return absl::OkStatus();
    absl::MutexLock lock(&mutex_);
    // Only under this lock does anybody else begin to keep it (ForLong). They
    // are not broken off: a backup would be lost, and what is reclaimed may be
    // the room that the disk lacks. Reads go on from the old one.
    if (database_.use_count() > 1) {
      return absl::UnavailableError(
          "after a write error the store is opened again once the backup is "
          "made, or the room of deleted records given back, that is at work");
    }
    // Before the open: the lock file in the directory is the old one's.
    database_.reset();
    rocksdb::Status status;
    database_ = RocksdbDatabase::Open(
        // Even where --accept-loss was given: that holds for what the start has
        // found.
        path_, RocksdbDatabase::DamagedLog::kRefuse, &status);
    broken_ = database_ == nullptr;
    spdlog::warn("store opened again status=\"{}\"", status.ToString());
    return FromRocksdb(status);
  }

  const std::string dir_;
  const std::string path_;
  const RocksdbStoreOptions options_;
  std::string id_;
  bool broken_ = false;  // the commit thread's
  // Held for reading while the database is used, for writing to replace it.
  mutable absl::Mutex mutex_;
  // Shared with calls that take minutes.
  std::shared_ptr<RocksdbDatabase> database_ ABSL_GUARDED_BY(mutex_);
  Committer committer_;  // last: its thread uses the others
};

// Does another process, or another store of this one, hold the directory?
// RocksDB gives such an error the code of any error of files and says it in
// words alone. The words are compared from their beginning, because paths
// follow that may contain anything.
bool IsLocked(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  return absl::StartsWith(text, "IO error: While lock file") ||
         absl::StartsWith(text, "IO error: lock hold by current process");
}

// What the user reads when the daemon does not start: the cause, and what to do
// about each of the three.
absl::Status OpenError(const std::string& dir, const rocksdb::Status& status) {
  const std::string text = status.ToString();
  if (IsLocked(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat("data directory \"", dir,
                     "\" is in use by another traincheckd: stop that one or "
                     "name another directory (",
                     text, ")"));
  }
  if (status.IsCorruption()) {
    return absl::DataLossError(absl::StrCat(
        "data directory \"", dir, "\" is damaged: ", text,
        ". Nothing was changed. Check the disk and put a backup in its place; "
        "if the damaged file is a log, --accept-loss opens what lies before "
        "the damage and gives up what was stored behind it"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "data directory \"", dir, "\": cannot open its database: ", text));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenRocksdbStore(
    const std::string& dir, const RocksdbStoreOptions& options) {
  if (absl::Status status = PrepareDataDir(dir); !status.ok()) return status;
  using DamagedLog = RocksdbDatabase::DamagedLog;
  const std::string path = DatabasePath(dir);
  rocksdb::Status status;
  std::unique_ptr<RocksdbDatabase> database =
      RocksdbDatabase::Open(path, DamagedLog::kRefuse, &status);
  // Only for damage: an open that fails for another reason loses nothing by
  // failing.
  const bool loses = options.accept_loss && status.IsCorruption();
  if (loses) {
    spdlog::error(
        "store is damaged, what is behind the damage is given up "
        "as asked for error=\"{}\"",
        status.ToString());
    database = RocksdbDatabase::Open(path, DamagedLog::kCutOff, &status);
  }
  if (database == nullptr) return OpenError(dir, status);
  // Behind the database's lock: a daemon that is refused because another one
  // has the directory leaves it as it is.
  if (absl::Status s = RaiseFormat(dir); !s.ok()) return s;
  const bool is_backup = IsUnopenedBackup(dir);
  auto store =
      std::make_unique<RocksdbStore>(dir, std::move(database), options);
  // The new id first and the mark of the backup behind it: a crash in between
  // draws another id once more, and no id is used by two stores.
  absl::Status made = store->Initialise(is_backup || loses);
  if (made.ok() && is_backup) made = MarkBackupOpened(dir);
  if (!made.ok()) return made;
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace traincheck::server
