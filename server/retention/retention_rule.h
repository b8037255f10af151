// Which runs' records are to go, by age and by size, oldest first.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_RETENTION_RETENTION_RULE_H_
#define TRAINCHECK_SERVER_RETENTION_RETENTION_RULE_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/runs/run_view.h"

namespace traincheck::server {

struct RetentionLimits {
  // Of ended runs, since their end.
  absl::Duration age = absl::InfiniteDuration();
  // Of the stored records of all runs.
  uint64_t bytes = UINT64_MAX;
  // Of those of one owner, administrators left out.
  uint64_t owner_bytes = UINT64_MAX;

  bool IsNone() const {
    return age == absl::InfiniteDuration() && bytes == UINT64_MAX &&
           owner_bytes == UINT64_MAX;
  }
};

// Asked of runs that name a set.
using CheckedToItsEnd = std::function<bool(const std::string& run)>;

// Ids of the runs whose records are over a limit, oldest end first. Runs that
// have not ended, are kept, whose check has not read all of them, or from which
// a set was `learned`, stay, whatever the limits say.
std::vector<std::string> RunsToDrop(const std::vector<RunUse>& runs,
                                    const std::set<std::string>& learned,
                                    const RetentionLimits& limits,
                                    absl::Time now,
                                    const CheckedToItsEnd& is_checked);

// "200GB", "1.5TB", "4096", "512MiB", or "50%" of `whole`. InvalidArgument,
// saying what is expected.
[[nodiscard]] absl::StatusOr<uint64_t> ParseBytes(const std::string& text,
                                                  uint64_t whole);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RETENTION_RETENTION_RULE_H_
