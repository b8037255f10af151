#include "server/store/data_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace traincheck {
namespace {

constexpr char kFormatPrefix[] = "traincheckd store ";

std::string FormatPath(const std::string& dir) { return dir + "/FORMAT"; }

absl::Status Failed(const std::string& dir, absl::string_view what,
                    const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("data directory \"", dir, "\": ", what, ": ", why));
}

// Durable before the database is made, so that a crash in between leaves a
// directory that is still recognised.
absl::Status WriteFormat(const std::string& dir) {
  const std::string text =
      absl::StrCat(kFormatPrefix, kStoreFormatVersion, "\n");
  const std::string next = FormatPath(dir) + ".new";
  const int fd =
      open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Failed(dir, "cannot write to it", strerror(errno));
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool synced = written && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!synced) return Failed(dir, "cannot write to it", strerror(error));
  if (rename(next.c_str(), FormatPath(dir).c_str()) != 0) {
    return Failed(dir, "cannot write to it", strerror(errno));
  }
  return absl::OkStatus();
}

absl::Status CheckFormat(const std::string& dir) {
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
  if (version > kStoreFormatVersion) {
    return Failed(
        dir, "was written by a newer traincheckd",
        absl::StrCat("it has store format ", version,
                     ", this program knows formats up to ", kStoreFormatVersion,
                     ". Nothing was changed; start the newer program"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string DatabasePath(const std::string& dir) { return dir + "/db"; }

absl::Status PrepareDataDir(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return Failed(dir, "cannot create it", error.message());
  if (!std::filesystem::is_directory(dir, error)) {
    return Failed(dir, "cannot use it", "it is not a directory");
  }
  const bool ours = std::filesystem::exists(FormatPath(dir), error);
  if (ours) {
    if (absl::Status status = CheckFormat(dir); !status.ok()) return status;
  } else if (!std::filesystem::is_empty(dir, error)) {
    return Failed(dir, "is not a traincheckd data directory",
                  error ? error.message()
                        : "it is not empty and has no file FORMAT. Name a "
                          "new or empty directory");
  }
  if (chmod(dir.c_str(), 0700) != 0) {
    return Failed(dir, "cannot make it private", strerror(errno));
  }
  if (access(dir.c_str(), W_OK | X_OK) != 0) {
    return Failed(dir, "cannot write to it", strerror(errno));
  }
  return ours ? absl::OkStatus() : WriteFormat(dir);
}

}  // namespace traincheck
