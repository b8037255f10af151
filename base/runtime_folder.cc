#include "base/runtime_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace traincheck {

bool IsPrivateFolder(const std::string& path) {
  struct stat status;
  // Not stat: a link in /tmp could be led to another folder at any time.
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

std::string RuntimeFolder() {
  // The variable may be another user's (sudo can keep it), so the folder itself
  // is looked at.
  const char* const named = std::getenv("XDG_RUNTIME_DIR");
  for (const std::string& system : {std::string(named == nullptr ? "" : named),
                                    absl::StrCat("/run/user/", geteuid())}) {
    if (!system.empty() && system[0] == '/' && IsPrivateFolder(system)) {
      return system + "/traincheck";
    }
  }
  // Anybody can take this name; MakeRuntimeFolder finds out.
  return absl::StrCat("/tmp/traincheck-", geteuid());
}

// Whoever needs the folder first makes it, client or daemon, so that no other
// user can take the name.
absl::StatusOr<std::string> MakeRuntimeFolder() {
  std::string folder = RuntimeFolder();
  // What is there already may be another user's and is looked at below.
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, folder);
  }
  if (IsPrivateFolder(folder)) return folder;
  return absl::PermissionDeniedError(absl::StrCat(
      folder,
      " is not a folder of yours alone, and it has to be: remove it, or have "
      "its owner remove it, or name another address (--listen of traincheckd, "
      "TRAINCHECK_SERVER)"));
}

std::string DefaultAddress() {
  return absl::StrCat("unix:", RuntimeFolder(), "/traincheckd.sock");
}

std::string AutomaticTokenFile(const std::string& port) {
  return absl::StrCat(RuntimeFolder(), "/loopback-", port, ".token");
}

}  // namespace traincheck
