// What the runs of each owner take in the store. One owner's runs must not fill
// the disk for all: over the limit nothing more of theirs is taken, and their
// relays spool. Administrators, and so a single user, have no limit but that of
// all runs.
//
// Threads: one thread at a time.
#ifndef TRAINCHECK_SERVER_RUNS_OWNER_USE_H_
#define TRAINCHECK_SERVER_RUNS_OWNER_USE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace traincheck::server {

class OwnerUse {
 public:
  explicit OwnerUse(uint64_t limit) : limit_(limit) {}

  void Add(const std::string& owner, uint64_t bytes) { bytes_[owner] += bytes; }
  // REQUIRES: so many were added.
  void Subtract(const std::string& owner, uint64_t bytes);
  // May another batch of the owner's be stored? PermissionDenied, with both
  // sizes and what to do: a relay keeps its batches and waits for a person, and
  // does not take the batch for one that is too large (ResourceExhausted).
  [[nodiscard]] absl::Status CheckRoom(const std::string& owner) const;

 private:
  const uint64_t limit_;  // bytes
  std::map<std::string, uint64_t> bytes_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_OWNER_USE_H_
