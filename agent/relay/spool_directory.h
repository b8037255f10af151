// Where spool files lie and how much they may take: one folder for all
// processes of a relay, found when the first file is needed.
//
// Owned by the relay; every SpoolFile borrows it.
// Threads: externally synchronised (the relay's loop).
#ifndef TRAINCHECK_AGENT_RELAY_SPOOL_DIRECTORY_H_
#define TRAINCHECK_AGENT_RELAY_SPOOL_DIRECTORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace traincheck {

class SpoolDirectory {
 public:
  // `path` is tried first. `fallback` lies in a folder that everybody may
  // write to, so it is taken only if it belongs to this user.
  SpoolDirectory(std::string path, std::string fallback, uint64_t limit_bytes);
  SpoolDirectory(const SpoolDirectory&) = delete;
  SpoolDirectory& operator=(const SpoolDirectory&) = delete;

  // The folder, which exists then, mode 0700 if it was created here.
  [[nodiscard]] absl::StatusOr<std::string> Prepare();

  // Room for `bytes` more: ResourceExhausted over the limit (files that were
  // left here before count too) or where the disk would get too full.
  [[nodiscard]] absl::Status Reserve(uint64_t bytes);
  void Return(uint64_t bytes);

 private:
  const std::string path_;
  const std::string fallback_;
  const uint64_t limit_bytes_;
  std::string chosen_;
  uint64_t used_bytes_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_DIRECTORY_H_
