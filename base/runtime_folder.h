// The folder in which one user's daemon and its clients on one host meet: the
// default socket lies there, and the automatic tokens of daemons that listen
// on loopback. Nobody but the user may enter it.
//
// Threads: all functions are pure over the environment and the file system.
#ifndef TRAINCHECK_BASE_RUNTIME_FOLDER_H_
#define TRAINCHECK_BASE_RUNTIME_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"

namespace traincheck {

// $XDG_RUNTIME_DIR/traincheck or /run/user/UID/traincheck, whichever the
// system has made for this user; else, as in containers and under Slurm,
// /tmp/traincheck-UID.
std::string RuntimeFolder();

// RuntimeFolder, which exists then and is this user's alone. PermissionDenied
// if another user has taken its name in /tmp.
[[nodiscard]] absl::StatusOr<std::string> MakeRuntimeFolder();

// Is it a folder of this user into which nobody else may look?
bool IsPrivateFolder(const std::string& path);

// Where a daemon listens and its clients look if nobody names an address:
// "unix:" and a socket in RuntimeFolder.
std::string DefaultAddress();

// The token that the daemon of this user on that port of loopback has written.
std::string AutomaticTokenFile(const std::string& port);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_RUNTIME_FOLDER_H_
