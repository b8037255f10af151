#include "agent/relay/spool_directory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"

namespace traincheck::agent {
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
  // Not stat: in a folder that everybody may write to it could be somebody's
  // link.
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

// What is no spool file of this user is none of ours to read or to count.
void AddFiles(const std::string& path, std::vector<std::string>* files) {
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    struct stat status;
    if (at->path().extension() == ".spool" &&
        lstat(at->path().c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_uid == geteuid()) {
      files->push_back(at->path());
    }
  }
}

uint64_t SpooledBytes(const std::string& path) {
  std::vector<std::string> files;
  AddFiles(path, &files);
  uint64_t bytes = 0;
  for (const std::string& file : files) {
    // Other relays deliver and delete theirs meanwhile.
    std::error_code gone;
    const uintmax_t size = fs::file_size(file, gone);
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
                               uint64_t limit_bytes,
                               std::function<TimePoint()> now)
    : path_(std::move(path)),
      fallback_(std::move(fallback)),
      limit_bytes_(limit_bytes),
      now_(std::move(now)) {}

absl::StatusOr<std::string> SpoolDirectory::Prepare() {
  if (!chosen_.empty()) return chosen_;
  const absl::Status first = PrepareFolder(path_, path_ == fallback_);
  const absl::Status second =
      first.ok() ? first : PrepareFolder(fallback_, /*must_be_mine=*/true);
  if (!second.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "no folder for the spool: ", first.message(), "; ", second.message()));
  }
  // Once and for all: the files of a relay lie in one folder.
  chosen_ = first.ok() ? path_ : fallback_;
  Count();
  return chosen_;
}

std::vector<std::string> SpoolDirectory::Files() const {
  std::vector<std::string> files;
  AddFiles(path_, &files);
  if (fallback_ != path_) AddFiles(fallback_, &files);
  std::sort(files.begin(), files.end());
  return files;
}

std::string SpoolDirectory::Find(const std::string& name) const {
  for (const std::string& file : Files()) {
    if (fs::path(file).filename() == name) return file;
  }
  return "";
}

void SpoolDirectory::Count() {
  used_bytes_ = SpooledBytes(chosen_);
  counted_at_ = now_();
}

absl::Status SpoolDirectory::Reserve(uint64_t bytes) {
  if (now_() - counted_at_ >= kSpoolCountPeriod) Count();
  if (used_bytes_ + bytes > limit_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the spool has reached its limit of ", limit_bytes_, " bytes"));
  }
  if (absl::Status disk = CheckDisk(chosen_, bytes); !disk.ok()) return disk;
  used_bytes_ += bytes;
  return absl::OkStatus();
}

void SpoolDirectory::Return(uint64_t bytes) {
  // A count in between may have seen the file as it was before or after.
  used_bytes_ -= std::min(bytes, used_bytes_);
}

}  // namespace traincheck::agent
