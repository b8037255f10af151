#include "server/store/data_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/logging.h"
#include "base/write_all.h"

namespace traincheck::server {
namespace {

constexpr char kFormatPrefix[] = "traincheckd store ";

// What makes a folder a data directory (FORMAT) and what makes it a backup that
// was never opened (BACKUP). Both are files of one line, for people who look.
constexpr char kFormatName[] = "FORMAT";
constexpr char kBackupName[] = "BACKUP";

std::string FormatPath(const std::string& dir) {
  return absl::StrCat(dir, "/", kFormatName);
}

std::string BackupPath(const std::string& dir) {
  return absl::StrCat(dir, "/", kBackupName);
}

absl::Status Failed(const std::string& dir, absl::string_view what,
                    const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("data directory \"", dir, "\": ", what, ": ", why));
}

absl::Status SyncFolder(const std::string& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return synced ? absl::OkStatus()
                : Failed(dir, "cannot sync it", strerror(error));
}

// Readers see the whole text or no file, whatever dies when.
absl::Status WriteWhole(const std::string& dir, const std::string& name,
                        const std::string& text) {
  const std::string path = absl::StrCat(dir, "/", name);
  const std::string next = path + ".new";
  const int fd =
      open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Failed(dir, "cannot write to it", strerror(errno));
  const bool synced = WriteAll(fd, text) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!synced) return Failed(dir, "cannot write to it", strerror(error));
  if (rename(next.c_str(), path.c_str()) != 0) {
    return Failed(dir, "cannot write to it", strerror(errno));
  }
  // A rename is durable once the folder is.
  return SyncFolder(dir);
}

// Durable before the database is made, so that a crash in between leaves a
// directory that is still recognised.
absl::Status WriteFormat(const std::string& dir) {
  return WriteWhole(dir, kFormatName,
                    absl::StrCat(kFormatPrefix, kStoreFormatVersion, "\n"));
}

// The version in the file FORMAT. Whatever else stands there means that the
// folder is something else's, and nothing in it is touched.
absl::StatusOr<int> ReadFormat(const std::string& dir) {
  std::ifstream file(FormatPath(dir));
  std::string line;
  if (!std::getline(file, line)) {
    return Failed(dir, "cannot read its file FORMAT",
                  errno == 0 ? "it is empty" : strerror(errno));
  }
  absl::string_view rest = line;
  int version = 0;
  if (!absl::ConsumePrefix(&rest, kFormatPrefix) ||
      !absl::SimpleAtoi(rest, &version)) {
    return Failed(dir, "is not a traincheckd data directory",
                  absl::StrCat("its file FORMAT says \"", line, "\""));
  }
  return version;
}

absl::Status CheckFormat(const std::string& dir) {
  const absl::StatusOr<int> version = ReadFormat(dir);
  if (!version.ok()) return version.status();
  // Older formats are read: they are raised once the database is open
  // (RaiseFormat).
  if (*version > kStoreFormatVersion) {
    return Failed(
        dir, "was written by a newer traincheckd",
        absl::StrCat("it has store format ", *version,
                     ", this program knows formats up to ", kStoreFormatVersion,
                     ". Nothing was changed; start the newer program"));
  }
  return absl::OkStatus();
}

// The client that names the folder may be on another host, so the path is
// looked at before anything is made: a relative path would be taken from the
// daemon's working directory, and a backup within the data directory would be
// part of the next backup.
absl::Status CheckBackupFolder(const std::string& dir,
                               const std::filesystem::path& folder) {
  std::error_code error;
  if (!folder.is_absolute()) {
    return absl::InvalidArgumentError(
        absl::StrCat("backup folder \"", folder.string(),
                     "\" is not an absolute path on the daemon's host"));
  }
  // A link that leads nowhere exists too.
  if (std::filesystem::exists(std::filesystem::symlink_status(folder, error))) {
    return absl::AlreadyExistsError(
        absl::StrCat("backup folder \"", folder.string(),
                     "\" exists already: name one that does not"));
  }
  // Both as they really are: a link could lead into the data directory.
  const std::filesystem::path parent =
      std::filesystem::canonical(folder.parent_path(), error);
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "backup folder \"", folder.string(),
        "\": ", folder.parent_path().string(), ": ", error.message()));
  }
  const std::filesystem::path own = std::filesystem::canonical(dir, error);
  // By parts of the path, so that "/data2" does not count as lying in "/data".
  const auto [own_end, unused] =
      std::mismatch(own.begin(), own.end(), parent.begin(), parent.end());
  if (own_end == own.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "backup folder \"", folder.string(), "\" lies in the data directory"));
  }
  return absl::OkStatus();
}

absl::Status FillBackup(
    const std::string& partial, const std::string& store_id,
    const std::function<absl::Status(const std::string& path)>& copy_database) {
  if (absl::Status s = copy_database(DatabasePath(partial)); !s.ok()) return s;
  const std::string origin = absl::StrCat("backup of store ", store_id, "\n");
  // Before FORMAT: a copy that opens without this mark would keep the id of the
  // store that it was made of (IsUnopenedBackup).
  if (absl::Status s = WriteWhole(partial, kBackupName, origin); !s.ok()) {
    return s;
  }
  // Last: without it the folder is not taken for a data directory.
  return WriteFormat(partial);
}

}  // namespace

uint64_t BytesOf(const std::string& dir) {
  uint64_t bytes = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(dir, error);
  while (!error && at != std::filesystem::recursive_directory_iterator()) {
    std::error_code gone;  // files come and go meanwhile
    const uint64_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) bytes += size;
    at.increment(error);
  }
  return bytes;
}

absl::Status MakeBackup(
    const std::string& dir, const std::string& folder,
    const std::string& store_id,
    const std::function<absl::Status(const std::string& path)>& copy_database) {
  std::filesystem::path target =
      std::filesystem::path(folder).lexically_normal();
  // "/backups/today/" is the folder too.
  if (!target.has_filename()) target = target.parent_path();
  if (absl::Status s = CheckBackupFolder(dir, target); !s.ok()) return s;
  // A folder of this call alone (0700): whatever else is called *.partial is
  // somebody's, and what a try left that was cut short is theirs to delete.
  std::string partial = target.string() + ".partial-XXXXXX";
  if (mkdtemp(partial.data()) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot make backup folder \"", partial, "\": ", strerror(errno)));
  }
  absl::Status made = FillBackup(partial, store_id, copy_database);
  // Takes the place of nothing but an empty folder.
  if (made.ok() && rename(partial.c_str(), target.c_str()) != 0) {
    made = Failed(folder, "cannot rename the backup to it", strerror(errno));
  }
  if (!made.ok()) {
    std::error_code error;
    std::filesystem::remove_all(partial, error);
    return made;
  }
  // The name of the backup is durable only now, and its client is answered
  // behind that.
  return SyncFolder(target.parent_path().string());
}

bool IsUnopenedBackup(const std::string& dir) {
  std::error_code error;
  return std::filesystem::exists(BackupPath(dir), error);
}

absl::Status MarkBackupOpened(const std::string& dir) {
  if (unlink(BackupPath(dir).c_str()) != 0) {
    return Failed(dir, "cannot remove its file BACKUP", strerror(errno));
  }
  return SyncFolder(dir);
}

absl::Status RaiseFormat(const std::string& dir) {
  const absl::StatusOr<int> version = ReadFormat(dir);
  if (!version.ok()) return version.status();
  if (*version >= kStoreFormatVersion) return absl::OkStatus();
  spdlog::info(
      "store format is raised, older versions refuse the data directory from "
      "now on from={} to={}",
      *version, kStoreFormatVersion);
  return WriteFormat(dir);
}

std::string DatabasePath(const std::string& dir) { return dir + "/db"; }

absl::Status PrepareDataDir(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return Failed(dir, "cannot create it", error.message());
  if (!std::filesystem::is_directory(dir, error)) {
    return Failed(dir, "cannot use it", "it is not a directory");
  }
  // Before its mode is changed or a file is made: a folder of something else
  // stays as it is.
  const bool ours = std::filesystem::exists(FormatPath(dir), error);
  if (ours) {
    if (absl::Status status = CheckFormat(dir); !status.ok()) return status;
  } else if (!std::filesystem::is_empty(dir, error)) {
    return Failed(dir, "is not a traincheckd data directory",
                  error ? error.message()
                        : "it is not empty and has no file FORMAT. Name a "
                          "new or empty directory");
  }
  // What lies in it is of all users' trainings.
  if (chmod(dir.c_str(), 0700) != 0) {
    return Failed(dir, "cannot make it private", strerror(errno));
  }
  if (access(dir.c_str(), W_OK | X_OK) != 0) {
    return Failed(dir, "cannot write to it", strerror(errno));
  }
  return ours ? absl::OkStatus() : WriteFormat(dir);
}

}  // namespace traincheck::server
