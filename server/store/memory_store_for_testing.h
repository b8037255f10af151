// A Store in memory: fast, and durable when its owner says so.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_SERVER_STORE_MEMORY_STORE_FOR_TESTING_H_
#define TRAINCHECK_SERVER_STORE_MEMORY_STORE_FOR_TESTING_H_

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/store/store.h"

namespace traincheck::server {

class MemoryStore final : public Store {
 public:
  const std::string& id() const override { return id_; }
  void Write(WriteSet writes, Done done) override;
  absl::Status WriteAndWait(WriteSet writes, absl::Duration patience) override;
  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const override;
  absl::Status Scan(Table table, const std::string& from, const std::string& to,
                    const Visitor& visitor) const override;
  absl::Status Erase(const WriteSet& deletions) override;
  // Memory has no disk to give room back to, and nothing to copy.
  absl::Status Reclaim(const std::string&, const std::string&,
                       std::atomic<bool>*) override {
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Backup(const std::string&) override {
    return absl::UnimplementedError("a store in memory has no backup");
  }
  StoreHealth Health() const override { return {}; }
  void Close() override {}

  // What was written is durable now.
  void Sync();
  // What was written and not synced is gone, as if the machine had died.
  void Forget() { pending_.clear(); }
  size_t Count(Table table) const {
    return tables_[static_cast<size_t>(table)].size();
  }

 private:
  void Apply(const WriteSet& writes);

  const std::string id_ = "0123456789abcdef";
  std::map<std::string, std::string> tables_[kTables];
  std::vector<std::pair<WriteSet, Done>> pending_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_MEMORY_STORE_FOR_TESTING_H_
