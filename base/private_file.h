// Files with a secret in them: tokens and private keys. Nobody but their owner
// may look into them, and whoever reads them insists on that.
//
// Threads: all functions are pure over the file system.
#ifndef TRAINCHECK_BASE_PRIVATE_FILE_H_
#define TRAINCHECK_BASE_PRIVATE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace traincheck {

// The text of a regular file, at most 64 KiB, of this user or root that no
// other user may read or write. PermissionDenied says which mode it has and
// what to do; NotFound and other errors name the file.
[[nodiscard]] absl::StatusOr<std::string> ReadPrivateFile(
    const std::string& path);

// Replaces `path` by a file with mode 0600 in one step: readers see the old
// text or the new one. No link that lies there leads anywhere.
[[nodiscard]] absl::Status WritePrivateFile(const std::string& path,
                                            const std::string& text);
// The same with mode 0644, for what everybody may read.
[[nodiscard]] absl::Status WritePublicFile(const std::string& path,
                                           const std::string& text);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_PRIVATE_FILE_H_
