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
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/relay/spool_folder.h"
#include "agent/relay/spool_usage.h"
#include "agent/relay/unique_fd.h"
#include "base/spool_places.h"

namespace traincheck::agent {

class SpoolDirectory {
 public:
  using TimePoint = SpoolUsage::TimePoint;

  // `places` are tried in their order.
  SpoolDirectory(
      std::vector<SpoolPlace> places, uint64_t limit_bytes,
      std::function<TimePoint()> now = std::chrono::steady_clock::now);
  SpoolDirectory(const SpoolDirectory&) = delete;
  SpoolDirectory& operator=(const SpoolDirectory&) = delete;

  // What holds instead where the folder lies in memory (tmpfs).
  void SetMemoryLimit(uint64_t bytes) { memory_limit_bytes_ = bytes; }

  // The folder, which exists then and is this user's alone. Warns if it is not
  // that of the setting.
  [[nodiscard]] absl::StatusOr<std::string> Prepare();
  // A new file `name` in it, mode 0600, open and locked; never an existing one.
  // A folder in which it cannot be locked is given up for the next place.
  struct NewFile {
    std::string path;
    UniqueFd fd;
  };
  [[nodiscard]] absl::StatusOr<NewFile> CreateFile(const std::string& name);

  // The path of an existing file of this user in one of the folders; empty:
  // none.
  std::string Find(const std::string& name) const;
  // Paths of all spool files of this user, wherever relays look for a folder
  // or once did, sorted.
  std::vector<std::string> Files() const;

  // Room for `bytes` more: ResourceExhausted over the limit or where the disk
  // would get too full. The limit is on all that relays of this user hold on
  // this node in this folder. REQUIRES: Prepare was OK.
  [[nodiscard]] absl::Status Reserve(uint64_t bytes);
  void Return(uint64_t bytes);
  // A file that another relay left is taken over, or left to another one.
  void Adopt(uint64_t bytes);
  void Leave(uint64_t bytes);

 private:
  absl::Status Choose();
  absl::StatusOr<NewFile> CreateInFolder(const std::string& name);
  void CountIfDue(std::chrono::seconds period);
  // Does a file of the folder belong to another node?
  bool IsElsewhere(const std::string& path);

  const std::vector<SpoolPlace> places_;
  const std::function<TimePoint()> now_;
  const uint64_t limit_bytes_;
  uint64_t memory_limit_bytes_;
  uint64_t limit_ = 0;  // whichever holds in the folder
  std::optional<SpoolFolder> chosen_;
  std::map<std::string, std::string> without_locks_;  // folders: why
  std::optional<SpoolUsage> usage_;                   // in it
  std::map<std::string, bool> elsewhere_;             // what is known of files
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_DIRECTORY_H_
