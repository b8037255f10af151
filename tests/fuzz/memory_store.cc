#include "tests/fuzz/memory_store.h"

namespace traincheck {

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

void MemoryStore::Sync() {
  std::vector<std::pair<WriteSet, Done>> pending;
  pending.swap(pending_);
  for (auto& [writes, done] : pending) {
    for (const WriteSet::Entry& entry : writes.entries()) {
      tables_[static_cast<size_t>(entry.table)][entry.key] = entry.value;
    }
    if (done) done();
  }
}

}  // namespace traincheck
