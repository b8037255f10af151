// The daemon's durable state: tables of byte strings sorted by key. This is
// the only way to disk; key_format.md says what lies under which key.
//
// Threads: all methods are safe on any thread, except Close.
#ifndef TRAINCHECK_SERVER_STORE_STORE_H_
#define TRAINCHECK_SERVER_STORE_STORE_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace traincheck {

enum class Table { kMeta, kRuns, kBatches, kSets, kViolations, kQuarantine };
inline constexpr int kTables = 6;

// Entries that become durable together or not at all.
class WriteSet {
 public:
  struct Entry {
    Table table;
    std::string key;
    std::string value;
  };

  void Put(Table table, std::string key, std::string value) {
    bytes_ += key.size() + value.size();
    entries_.push_back({table, std::move(key), std::move(value)});
  }

  const std::vector<Entry>& entries() const { return entries_; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
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

  // nullopt: no such key.
  [[nodiscard]] virtual absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const = 0;

  // Visits the entries with from <= key < to in order of their keys.
  [[nodiscard]] virtual absl::Status Scan(Table table, const std::string& from,
                                          const std::string& to,
                                          const Visitor& visitor) const = 0;

  // Syncs what is queued, for a second at most, and ends the commit thread.
  // No other method may be called any more.
  virtual void Close() = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_STORE_STORE_H_
