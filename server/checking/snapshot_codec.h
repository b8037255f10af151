// A checker's state as a snapshot holds it: compressed.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_CHECKING_SNAPSHOT_CODEC_H_
#define TRAINCHECK_SERVER_CHECKING_SNAPSHOT_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

// A state of more bytes than this is not kept.
inline constexpr size_t kMaxSnapshotBytes = size_t{256} << 20;

void PackChecker(const std::string& state, stored::CheckSnapshot* snapshot);
// An error if it is damaged or claims to be larger than any.
[[nodiscard]] absl::StatusOr<std::string> UnpackCheckerUntrusted(
    const stored::CheckSnapshot& snapshot);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_SNAPSHOT_CODEC_H_
