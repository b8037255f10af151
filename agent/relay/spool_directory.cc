#include "agent/relay/spool_directory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "agent/relay/process_liveness.h"
#include "agent/relay/spool_load.h"
#include "base/logging.h"

namespace traincheck::agent {
namespace {

namespace fs = std::filesystem;

// The usage file lies beside the spool files. Its name has the boot id, so each
// node has its own if nodes share the folder.
constexpr char kUsagePrefix[] = "usage-";
// A usage file that was not written for this long belongs to a node that has
// started anew since then, or is gone.
constexpr std::chrono::hours kOldUsage{30 * 24};

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

bool IsMemory(int folder) {
  struct statfs system;
  return fstatfs(folder, &system) == 0 &&
         (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

// The training needs the disk, too, so the spool leaves a share of it free.
absl::Status CheckDisk(const SpoolFolder& folder, uint64_t bytes) {
  struct statvfs disk;
  if (fstatvfs(folder.fd.get(), &disk) != 0) {
    return absl::UnavailableError(
        absl::StrCat(folder.path, ": ", std::strerror(errno)));
  }
  // What this user may take: the reserve of root does not count.
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const uint64_t keep =
      uint64_t{disk.f_blocks} * disk.f_frsize / 100 * kKeepFreePercent;
  if (free >= bytes && free - bytes >= keep) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the disk of ", folder.path,
                                                   " would have less than ",
                                                   kKeepFreePercent, "% free"));
}

// Removes usage files of nodes that are gone or have another boot id by now.
void RemoveOldUsage(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.rfind(kUsagePrefix, 0) != 0) continue;
    struct stat status;
    if (lstat(at->path().c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        std::time(nullptr) - status.st_mtime >
            std::chrono::seconds(kOldUsage).count()) {
      unlink(at->path().c_str());
    }
  }
}

}  // namespace

SpoolDirectory::SpoolDirectory(std::vector<SpoolPlace> places,
                               uint64_t limit_bytes,
                               std::function<TimePoint()> now)
    : places_(std::move(places)),
      now_(std::move(now)),
      limit_bytes_(limit_bytes),
      memory_limit_bytes_(limit_bytes) {}

// The folder is chosen when the first batch has to be spooled: most relays
// never need one.
absl::StatusOr<std::string> SpoolDirectory::Prepare() {
  if (!chosen_.has_value()) {
    if (absl::Status status = Choose(); !status.ok()) return status;
  }
  return chosen_->path;
}

// The first place that works is taken: the setting's, then temporary folders,
// last the home (docs/decisions.md).
absl::Status SpoolDirectory::Choose() {
  std::string why;
  for (const SpoolPlace& place : places_) {
    absl::StatusOr<SpoolFolder> folder = MakeSpoolFolder(place);
    if (folder.ok() && without_locks_.contains(folder->path)) {
      folder = absl::UnavailableError(absl::StrCat(
          folder->path, ": cannot lock files: ", without_locks_[folder->path]));
    }
    if (!folder.ok()) {
      absl::StrAppend(&why, why.empty() ? "" : "; ", Message(folder.status()));
      continue;
    }
    // A folder that the user named and does not get is worth a line; the
    // defaults are tried in silence.
    const bool named = places_[0].kind == SpoolPlace::Kind::kNamed;
    if (named && !why.empty()) {
      spdlog::warn(
          "the spool folder {} cannot be used ({}): records are spooled in {}",
          places_[0].folder, why, folder->path);
    }
    // Once and for all: the files of a relay lie in one folder.
    chosen_ = *std::move(folder);
    limit_ = IsMemory(chosen_->fd.get()) ? memory_limit_bytes_ : limit_bytes_;
    usage_.emplace(chosen_->fd.get(), absl::StrCat(kUsagePrefix, BootId()));
    CountIfDue(kSpoolCountPeriod);
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("no folder for the spool: ", why));
}

absl::StatusOr<SpoolDirectory::NewFile> SpoolDirectory::CreateFile(
    const std::string& name) {
  while (true) {
    absl::StatusOr<NewFile> made = CreateInFolder(name);
    if (!made.ok() || LockSpoolFile(made->fd.get(), 0)) return made;
    const int error = errno;
    unlink(made->path.c_str());
    // Without a lock nobody could ever take the file over. The next place is
    // tried, and this one not again.
    without_locks_[chosen_->path] = std::strerror(error);
    chosen_.reset();
  }
}

// O_EXCL and O_NOFOLLOW: a file or a link that is there is never written to. In
// a shared temporary folder it may be another user's.
absl::StatusOr<SpoolDirectory::NewFile> SpoolDirectory::CreateInFolder(
    const std::string& name) {
  constexpr int kNew = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  const auto create = [&] {
    return openat(chosen_->fd.get(), name.c_str(), kNew, 0600);
  };
  absl::StatusOr<std::string> folder = Prepare();
  if (!folder.ok()) return folder.status();
  UniqueFd fd(create());
  // Whoever tidies up temporary folders has deleted it since it was chosen.
  if (!fd.valid() && errno == ENOENT) {
    chosen_.reset();
    folder = Prepare();
    if (!folder.ok()) return folder.status();
    fd = UniqueFd(create());
  }
  const std::string path = absl::StrCat(*folder, "/", name);
  if (!fd.valid()) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return NewFile{path, std::move(fd)};
}

// For orphans and for taking over: files may lie in any of the places, also in
// that of an earlier version.
std::vector<std::string> SpoolDirectory::Files() const {
  std::vector<std::string> files;
  for (const std::string& folder : SpoolFolders(places_)) {
    AddSpoolFiles(folder, &files);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string SpoolDirectory::Find(const std::string& name) const {
  for (const std::string& folder : SpoolFolders(places_)) {
    const std::string path = absl::StrCat(folder, "/", name);
    struct stat status;
    if (lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_uid == geteuid()) {
      return path;
    }
  }
  return "";
}

// Does a file of the folder belong to another node? Nodes may share the folder,
// and each node's limit counts its own files only. A name begins with the boot
// id, so only files of other boots are opened, each one once.
bool SpoolDirectory::IsElsewhere(const std::string& path) {
  const std::string boot = BootId();
  const std::string name = fs::path(path).filename();
  if (name.substr(0, boot.size()) == boot) return false;
  const auto known = elsewhere_.find(name);
  if (known != elsewhere_.end()) return known->second;
  const absl::StatusOr<SpoolOwner> owner = ReadSpoolOwner(path);
  const std::string host = owner.ok() ? owner->hello.process().host() : "";
  return elsewhere_[name] = !host.empty() && host != HostName();
}

// Counting reads the whole folder, so one relay does it for all, once a period.
void SpoolDirectory::CountIfDue(std::chrono::seconds period) {
  if (!usage_->MustCount(now_(), period)) return;
  std::vector<std::string> files;
  AddSpoolFiles(chosen_->path, &files);
  uint64_t bytes = 0;
  for (const std::string& file : files) {
    // Other relays deliver and delete theirs meanwhile.
    std::error_code gone;
    const uintmax_t size = fs::file_size(file, gone);
    if (!gone && !IsElsewhere(file)) bytes += size;
  }
  usage_->Counted(bytes);
  RemoveOldUsage(chosen_->path);
}

// Called before each write. OK: the bytes are counted as taken, and the caller
// returns what it does not use.
absl::Status SpoolDirectory::Reserve(uint64_t bytes) {
  if (!usage_.has_value()) {
    return absl::UnavailableError("no folder for the spool");
  }
  CountIfDue(kSpoolCountPeriod);
  // Before it is compared: of two that ask at once at most one gets the rest.
  usage_->Add(bytes);
  // Files may have been delivered or deleted by hand since they were counted.
  // Before anything is refused they are counted again, but not at each batch.
  if (usage_->Total() > limit_) CountIfDue(kSpoolCountAtLimit);
  absl::Status room =
      usage_->Total() > limit_
          ? absl::ResourceExhaustedError(absl::StrCat(
                "the spool has reached its limit of ", limit_, " bytes"))
          : CheckDisk(*chosen_, bytes);
  if (!room.ok()) usage_->Subtract(bytes);
  return room;
}

void SpoolDirectory::Return(uint64_t bytes) {
  if (usage_.has_value()) usage_->Subtract(bytes);
}

void SpoolDirectory::Adopt(uint64_t bytes) {
  if (usage_.has_value()) usage_->Adopt(bytes);
}

void SpoolDirectory::Leave(uint64_t bytes) {
  if (usage_.has_value()) usage_->Leave(bytes);
}

}  // namespace traincheck::agent
