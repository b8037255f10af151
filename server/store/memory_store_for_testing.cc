#include "server/store/memory_store_for_testing.h"

namespace traincheck::server {

void MemoryStore::Write(WriteSet writes, Done done) {
  pending_.emplace_back(std::move(writes), std::move(done));
}

absl::Status MemoryStore::WriteAndWait(WriteSet writes, absl::Duration) {
  Write(std::move(writes), nullptr);
  Sync();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> MemoryStore::Get(
    Table table, const std::string& key) const {
  const auto& entries = tables_[static_cast<size_t>(table)];
  const auto at = entries.find(key);
  if (at == entries.end()) return std::optional<std::string>();
  return std::optional<std::string>(at->second);
}

absl::Status MemoryStore::Scan(Table table, const std::string& from,
                               const std::string& to,
                               const Visitor& visitor) const {
  const auto& entries = tables_[static_cast<size_t>(table)];
  for (auto at = entries.lower_bound(from);
       at != entries.end() && at->first < to; ++at) {
    if (!visitor(at->first, at->second)) break;
  }
  return absl::OkStatus();
}

absl::Status MemoryStore::Erase(const WriteSet& deletions) {
  Apply(deletions);
  return absl::OkStatus();
}

void MemoryStore::Apply(const WriteSet& writes) {
  for (const WriteSet::Entry& entry : writes.entries()) {
    auto& entries = tables_[static_cast<size_t>(entry.table)];
    switch (entry.change) {
      case WriteSet::Change::kPut:
        entries[entry.key] = entry.value;
        break;
      case WriteSet::Change::kDelete:
        entries.erase(entry.key);
        break;
      case WriteSet::Change::kDeleteRange:
        entries.erase(entries.lower_bound(entry.key),
                      entries.lower_bound(entry.value));
        break;
    }
  }
}

void MemoryStore::Sync() {
  std::vector<std::pair<WriteSet, Done>> pending;
  pending.swap(pending_);
  for (auto& [writes, done] : pending) {
    Apply(writes);
    if (done) done();
  }
}

}  // namespace traincheck::server
