#include "agent/relay/spool_directory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"

namespace traincheck {
namespace {

namespace fs = std::filesystem;

absl::Status PrepareFolder(const std::string& path, bool must_be_mine) {
  std::error_code ignored;  // mkdir says what is wrong
  fs::create_directories(fs::path(path).parent_path(), ignored);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 ||
      (must_be_mine &&
       (!S_ISDIR(status.st_mode) || status.st_uid != geteuid()))) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": not a folder of this user"));
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

uint64_t SpooledBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (at->path().extension() != ".spool") continue;
    const uintmax_t size = at->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

absl::Status CheckDisk(const std::string& path, uint64_t bytes) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const uint64_t keep =
      uint64_t{disk.f_blocks} * disk.f_frsize / 100 * kKeepFreePercent;
  if (free >= bytes && free - bytes >= keep) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the disk of ", path,
                                                   " would have less than ",
                                                   kKeepFreePercent, "% free"));
}

}  // namespace

SpoolDirectory::SpoolDirectory(std::string path, std::string fallback,
                               uint64_t limit_bytes)
    : path_(std::move(path)),
      fallback_(std::move(fallback)),
      limit_bytes_(limit_bytes) {}

absl::StatusOr<std::string> SpoolDirectory::Prepare() {
  if (!chosen_.empty()) return chosen_;
  const absl::Status first = PrepareFolder(path_, path_ == fallback_);
  const absl::Status second =
      first.ok() ? first : PrepareFolder(fallback_, /*must_be_mine=*/true);
  if (!second.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "no folder for the spool: ", first.message(), "; ", second.message()));
  }
  chosen_ = first.ok() ? path_ : fallback_;
  used_bytes_ = SpooledBytes(chosen_);
  return chosen_;
}

absl::Status SpoolDirectory::Reserve(uint64_t bytes) {
  if (used_bytes_ + bytes > limit_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the spool has reached its limit of ", limit_bytes_, " bytes"));
  }
  if (absl::Status disk = CheckDisk(chosen_, bytes); !disk.ok()) return disk;
  used_bytes_ += bytes;
  return absl::OkStatus();
}

void SpoolDirectory::Return(uint64_t bytes) { used_bytes_ -= bytes; }

}  // namespace traincheck
