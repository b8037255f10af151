#include "server/sets/set_index.h"

#include <string_view>
#include <utility>

namespace traincheck::server {

absl::Status SetIndex::ReadOnce() const {
  // Read once, and at the first question: each set is parsed for its summary,
  // which takes a while with large ones.
  if (read_) return absl::OkStatus();
  std::map<std::string, Versions> sets;
  absl::Status bad;
  const absl::Status scanned = store_.Scan(
      Table::kSets, "", "\xff",  // names are ASCII
      [&](std::string_view, std::string_view value) {
        v1::SetDetail set;
        if (!set.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
          bad = absl::DataLossError("a stored set does not parse");
          return false;
        }
        v1::SetSummary& summary = *set.mutable_summary();
        sets[summary.name()][summary.version()] = std::move(summary);
        return true;
      });
  if (!scanned.ok()) return scanned;
  if (!bad.ok()) return bad;
  // Only a whole reading counts: after an error the next question tries again.
  sets_ = std::move(sets);
  read_ = true;
  return absl::OkStatus();
}

void SetIndex::Add(const v1::SetSummary& summary) {
  absl::MutexLock lock(&mutex_);
  // Whoever reads the store first finds it there.
  if (read_) sets_[summary.name()][summary.version()] = summary;
}

void SetIndex::Remove(const std::string& name, uint32_t version) {
  absl::MutexLock lock(&mutex_);
  const auto set = sets_.find(name);
  if (set == sets_.end()) return;
  set->second.erase(version);
  // A name in the map always has a version, on which Newest and NewestOf rely.
  if (set->second.empty()) sets_.erase(set);
}

absl::StatusOr<std::vector<v1::SetSummary>> SetIndex::Newest() const {
  absl::MutexLock lock(&mutex_);
  if (absl::Status s = ReadOnce(); !s.ok()) return s;
  std::vector<v1::SetSummary> newest;
  for (const auto& [name, versions] : sets_) {
    newest.push_back(versions.rbegin()->second);
  }
  return newest;
}

absl::StatusOr<std::optional<v1::SetSummary>> SetIndex::NewestOf(
    const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  if (absl::Status s = ReadOnce(); !s.ok()) return s;
  const auto set = sets_.find(name);
  if (set == sets_.end()) return std::optional<v1::SetSummary>();
  return std::optional<v1::SetSummary>(set->second.rbegin()->second);
}

// The deletion of a whole set needs these: each version has a key of its own.
absl::StatusOr<std::vector<uint32_t>> SetIndex::VersionsOf(
    const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  if (absl::Status s = ReadOnce(); !s.ok()) return s;
  std::vector<uint32_t> versions;
  const auto set = sets_.find(name);
  if (set == sets_.end()) return versions;
  for (const auto& [version, summary] : set->second) {
    versions.push_back(version);
  }
  return versions;
}

}  // namespace traincheck::server
