// The envelope of a saved state: says of what it is and shows damage.
//
//   "tccheck" format:u8 fingerprint hash state
//
// fingerprint and hash are 16 hex digits; hash is that of the state.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_SNAPSHOT_H_
#define TRAINCHECK_CHECKER_SNAPSHOT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace traincheck {

// `fingerprint` is of 16 bytes and says which check the state is of.
std::string Seal(const std::string& fingerprint, const std::string& state);

// The state, or an error that says why it is not one for this check.
[[nodiscard]] absl::StatusOr<std::string_view> Unseal(
    const std::string& fingerprint, std::string_view bytes);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_SNAPSHOT_H_
