// Where spool files lie and how much they may take: one folder for all
// processes of a relay, found when the first file is needed.
//
// Owned by the relay; every SpoolFile borrows it.
// Threads: externally synchronised (the relay's loop).
#ifndef TRAINCHECK_AGENT_RELAY_SPOOL_DIRECTORY_H_
#define TRAINCHECK_AGENT_RELAY_SPOOL_DIRECTORY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace traincheck::agent {

class SpoolDirectory {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `path` is tried first. `fallback` lies in a folder that everybody may
  // write to, so it is taken only if it belongs to this user.
  SpoolDirectory(
      std::string path, std::string fallback, uint64_t limit_bytes,
      std::function<TimePoint()> now = std::chrono::steady_clock::now);
  SpoolDirectory(const SpoolDirectory&) = delete;
  SpoolDirectory& operator=(const SpoolDirectory&) = delete;

  // The folder, which exists then, mode 0700 if it was created here.
  [[nodiscard]] absl::StatusOr<std::string> Prepare();

  // The path of an existing file in one of the two folders; empty: none.
  std::string Find(const std::string& name) const;
  // Paths of all spool files in both folders that this user owns, sorted.
  std::vector<std::string> Files() const;

  // Room for `bytes` more: ResourceExhausted over the limit or where the disk
  // would get too full. The limit is on all files of the folder; those of
  // other relays are counted anew every kSpoolCountPeriod.
  [[nodiscard]] absl::Status Reserve(uint64_t bytes);
  void Return(uint64_t bytes);

 private:
  void Count();

  const std::string path_;
  const std::string fallback_;
  const uint64_t limit_bytes_;
  const std::function<TimePoint()> now_;
  std::string chosen_;
  uint64_t used_bytes_ = 0;
  TimePoint counted_at_{};
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_DIRECTORY_H_
