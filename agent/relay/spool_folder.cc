#include "agent/relay/spool_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace traincheck::agent {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr std::string_view kExtension = ".spool";

absl::Status Unavailable(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
}

// Others may be able to read the folder; they must not be able to put files
// into it.
bool IsPrivate(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & kOthersWrite) == 0;
}

// A folder is as open as the one that it is made in, and sticky then: what a
// site names for all users must not belong to the first of them.
void Make(const fs::path& path) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
  struct stat status;
  if (stat(path.c_str(), &status) == 0) return;
  if (parent != path) Make(parent);
  if (mkdir(path.c_str(), 0700) != 0 || stat(parent.c_str(), &status) != 0) {
    return;  // whoever opens it says what is wrong
  }
  const mode_t others = ((status.st_mode & S_IWGRP) != 0 ? S_IRWXG : 0) |
                        ((status.st_mode & S_IWOTH) != 0 ? S_IRWXO : 0);
  if (others == 0) return;
  const UniqueFd made(open(path.c_str(), kFolder | O_NOFOLLOW));
  if (made.valid()) fchmod(made.get(), S_IRWXU | S_ISVTX | others);
}

// Makes and opens one folder further down, which must be this user's alone.
// `folder` is open, so no link can be put in the way.
absl::StatusOr<UniqueFd> Enter(const UniqueFd& folder, const std::string& name,
                               const std::string& path) {
  if (mkdirat(folder.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
    return Unavailable(path);
  }
  UniqueFd entered(openat(folder.get(), name.c_str(), kFolder | O_NOFOLLOW));
  struct stat status;
  if (!entered.valid() || fstat(entered.get(), &status) != 0 ||
      !IsPrivate(status)) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": not a folder of this user alone"));
  }
  // Names are nobody's business either.
  if ((status.st_mode & 077) != 0) fchmod(entered.get(), S_IRWXU);
  return entered;
}

}  // namespace

bool LockSpoolFile(int fd, int how) {
  while (flock(fd, LOCK_EX | how) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

// A temporary folder itself is not made: if it is missing, the caller tries the
// next place.
absl::StatusOr<SpoolFolder> MakeSpoolFolder(const SpoolPlace& place) {
  if (place.kind != SpoolPlace::Kind::kTemporary) Make(place.folder);
  SpoolFolder made = {place.folder,
                      UniqueFd(open(place.folder.c_str(), kFolder))};
  struct stat status;
  if (!made.fd.valid() || fstat(made.fd.get(), &status) != 0) {
    return Unavailable(place.folder);
  }
  // What nobody else may write to needs no folder for each user below it.
  const bool itself =
      place.kind == SpoolPlace::Kind::kNamed && IsPrivate(status);
  // Each level is opened below the one before and judged by its descriptor, so
  // that nobody can put a link in its place meanwhile.
  for (const auto& name : absl::StrSplit(place.below, '/')) {
    if (itself) break;
    absl::StrAppend(&made.path, "/", name);
    absl::StatusOr<UniqueFd> next =
        Enter(made.fd, std::string(name), made.path);
    if (!next.ok()) return next.status();
    made.fd = *std::move(next);
  }
  if (faccessat(made.fd.get(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    return Unavailable(made.path);
  }
  return made;
}

// Other users may have put files into a shared folder; only regular files of
// this user count.
void AddSpoolFiles(const std::string& folder, std::vector<std::string>* files) {
  DIR* const list = opendir(folder.c_str());
  if (list == nullptr) return;
  struct stat status;
  const bool ours = fstat(dirfd(list), &status) == 0 && IsPrivate(status);
  while (const dirent* entry = readdir(list)) {
    const std::string_view name = entry->d_name;
    if (name.size() <= kExtension.size() ||
        name.substr(name.size() - kExtension.size()) != kExtension) {
      continue;
    }
    // What is no file of this user is none of ours to read or to count.
    const bool known = ours && entry->d_type == DT_REG;
    if (known || (fstatat(dirfd(list), entry->d_name, &status,
                          AT_SYMLINK_NOFOLLOW) == 0 &&
                  S_ISREG(status.st_mode) && status.st_uid == geteuid())) {
      files->push_back(absl::StrCat(folder, "/", entry->d_name));
    }
  }
  closedir(list);
}

}  // namespace traincheck::agent
