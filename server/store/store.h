// The daemon's durable state: tables of byte strings sorted by key. This is
// the only way to disk; key_format.md says what lies under which key.
//
// Threads: all methods are safe on any thread, except Close. Reclaim and Backup
// may take minutes and do not hold up the others, but for writes after a write
// error, which wait for them.
#ifndef TRAINCHECK_SERVER_STORE_STORE_H_
#define TRAINCHECK_SERVER_STORE_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace traincheck::server {

enum class Table { kMeta, kRuns, kBatches, kSets, kViolations, kQuarantine };
inline constexpr int kTables = 6;

// Changes that become durable together or not at all, applied in the order in
// which they were added.
class WriteSet {
 public:
  enum class Change { kPut, kDelete, kDeleteRange };
  struct Entry {
    Table table;
    Change change;
    std::string key;
    // The value, or the end of the range.
    std::string value;
  };

  void Put(Table table, std::string key, std::string value) {
    Add({table, Change::kPut, std::move(key), std::move(value)});
  }
  // No error if there is no such key.
  void Delete(Table table, std::string key) {
    Add({table, Change::kDelete, std::move(key), {}});
  }
  // All keys with from <= key < to.
  void DeleteRange(Table table, std::string from, std::string to) {
    Add({table, Change::kDeleteRange, std::move(from), std::move(to)});
  }

  const std::vector<Entry>& entries() const { return entries_; }
  size_t bytes() const { return bytes_; }

 private:
  void Add(Entry entry) {
    bytes_ += entry.key.size() + entry.value.size();
    entries_.push_back(std::move(entry));
  }

  std::vector<Entry> entries_;
  size_t bytes_ = 0;
};

// How the data directory is.
struct StoreHealth {
  uint64_t stored_bytes = 0;  // all its files
  uint64_t free_bytes = 0;    // on its disk, for us
  // Why nothing is acknowledged just now; OK: writes succeed.
  absl::Status error;
};

class Store {
 public:
  // Runs on the store's commit thread; must be short and must not wait for
  // another write.
  using Done = std::function<void()>;
  // False stops the scan.
  using Visitor =
      std::function<bool(std::string_view key, std::string_view value)>;

  virtual ~Store() = default;

  // 16 hex digits, drawn when the data directory was made.
  virtual const std::string& id() const = 0;

  // Queues the set. Sets become durable in the order of the calls; `done` is
  // called once this one is synced. While the disk refuses (full), the store
  // tries again and says so in the log; `done` is not called if it never
  // succeeds.
  virtual void Write(WriteSet writes, Done done) = 0;

  // The same, waiting. Unavailable, with what the disk said last, if that
  // takes longer than `patience`; the write stays queued.
  [[nodiscard]] virtual absl::Status WriteAndWait(WriteSet writes,
                                                  absl::Duration patience) = 0;

  // WriteAndWait for who keeps in memory what the disk has: `apply` changes it,
  // as `done` of Write would, before this returns OK. After Unavailable it runs
  // once the write is durable after all, so that memory says the same as the
  // disk, and as the next daemon.
  [[nodiscard]] absl::Status WriteAndApply(WriteSet writes, Done apply,
                                           absl::Duration patience) {
    Write(std::move(writes), std::move(apply));
    return WriteAndWait(WriteSet(), patience);
  }

  // nullopt: no such key. Here and in Scan DataLoss, with the damaged file and
  // what to do, if the disk gives back something else than was written.
  [[nodiscard]] virtual absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const = 0;

  // Visits the entries with from <= key < to in order of their keys.
  [[nodiscard]] virtual absl::Status Scan(Table table, const std::string& from,
                                          const std::string& to,
                                          const Visitor& visitor) const = 0;

  // Deletes at once, ahead of what is queued, and on a full disk too.
  [[nodiscard]] virtual absl::Status Erase(const WriteSet& deletions) = 0;

  // Gives the room of the deleted batches with from <= key < to back to the
  // disk. Takes as long as copying what shares files with them; nothing else
  // waits for that. Ends early, with Cancelled, once *cancel is true. Writes
  // that are still queued are not seen.
  [[nodiscard]] virtual absl::Status Reclaim(const std::string& from,
                                             const std::string& to,
                                             std::atomic<bool>* cancel) = 0;

  // Makes `folder`, a data directory with all that is durable now, and returns
  // its bytes. It appears complete or not at all. Files are shared with this
  // store where both lie on one disk. InvalidArgument if `folder` is no
  // absolute path or lies in the data directory, AlreadyExists,
  // FailedPrecondition if it cannot be written, each with what to do.
  [[nodiscard]] virtual absl::StatusOr<uint64_t> Backup(
      const std::string& folder) = 0;

  virtual StoreHealth Health() const = 0;

  // Syncs what is queued, for a second at most, and ends the commit thread.
  // No other method may be called any more.
  virtual void Close() = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_STORE_H_
