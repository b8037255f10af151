// What is known of each version of each set but its rules, in memory: lists,
// owners and the newest version of a name are found without reading sets, which
// may be megabytes each.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_SETS_SET_INDEX_H_
#define TRAINCHECK_SERVER_SETS_SET_INDEX_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/store/store.h"

namespace traincheck::server {

class SetIndex {
 public:
  // `store` must outlive the calls of the methods that return a status. The
  // first of them reads the store's sets; each of them is DataLoss if that
  // fails.
  explicit SetIndex(const Store* store) : store_(*store) {}
  SetIndex(const SetIndex&) = delete;
  SetIndex& operator=(const SetIndex&) = delete;

  // A version is durable, or its deletion is.
  void Add(const v1::SetSummary& summary);
  void Remove(const std::string& name, uint32_t version);

  // The newest version of each set, by name.
  [[nodiscard]] absl::StatusOr<std::vector<v1::SetSummary>> Newest() const;
  // nullopt: there is no such set.
  [[nodiscard]] absl::StatusOr<std::optional<v1::SetSummary>> NewestOf(
      const std::string& name) const;
  // In their order; empty: there is no such set.
  [[nodiscard]] absl::StatusOr<std::vector<uint32_t>> VersionsOf(
      const std::string& name) const;

 private:
  using Versions = std::map<uint32_t, v1::SetSummary>;

  absl::Status ReadOnce() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Store& store_;
  mutable absl::Mutex mutex_;
  mutable bool read_ ABSL_GUARDED_BY(mutex_) = false;
  mutable std::map<std::string, Versions> sets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SETS_SET_INDEX_H_
