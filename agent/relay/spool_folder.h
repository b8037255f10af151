// Makes the folder for a place of spool files so that it is this user's alone,
// whoever else may write where it lies.
//
// Threads: all functions are pure over the file system.
#ifndef TRAINCHECK_AGENT_RELAY_SPOOL_FOLDER_H_
#define TRAINCHECK_AGENT_RELAY_SPOOL_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/relay/unique_fd.h"
#include "base/spool_places.h"

namespace traincheck::agent {

struct SpoolFolder {
  std::string path;
  UniqueFd fd;  // what the path leads to may become something else
};

// The folder, made if it is missing, and open. PermissionDenied: it is a link,
// another user's, or others may write to it. Unavailable: it cannot be made or
// written to.
[[nodiscard]] absl::StatusOr<SpoolFolder> MakeSpoolFolder(
    const SpoolPlace& place);

// Locks a spool file exclusively, until its last descriptor is closed; `how`: 0
// or LOCK_NB. False: as errno says. Some file systems have no locks (ENOLCK,
// ENOSYS, EOPNOTSUPP).
[[nodiscard]] bool LockSpoolFile(int fd, int how);

// Paths of the spool files in a folder that are this user's. Where nobody else
// may write, their names are enough.
void AddSpoolFiles(const std::string& folder, std::vector<std::string>* files);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_FOLDER_H_
