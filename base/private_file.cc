#include "base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/write_all.h"

namespace traincheck {
namespace {

// A token or a key is far smaller.
constexpr size_t kMaxBytes = 64 << 10;

absl::Status Failed(const std::string& path, int error) {
  return absl::ErrnoToStatus(error, path);
}

// By the open file: under its path another one could lie by the next look.
absl::Status CheckPrivate(int fd, const std::string& path) {
  struct stat status;
  if (fstat(fd, &status) != 0) return Failed(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a file"));
  }
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to user ", status.st_uid,
                     ": a secret must belong to you or to root"));
  }
  if ((status.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s has mode %04o, so others may use the secret in it: make a new one "
        "if anybody could have read it, and run chmod 600 on the file",
        path, status.st_mode & 07777));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path, errno);
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    // While it is read: a file without end must not fill the memory.
    if (text.size() > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has more than ", kMaxBytes, " bytes"));
    }
  }
}

// The new content appears under the path at once and as a whole: readers see
// the old file or the new one.
absl::Status Replace(const std::string& path, const std::string& text,
                     mode_t mode) {
  // In the same folder, because rename works within one file system alone.
  std::string next = path + ".XXXXXX";
  const int fd = mkostemp(next.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return Failed(path, errno);
  bool done = WriteAll(fd, text);
  // On disk before it gets the name: else a crash of the machine could leave an
  // empty file under it.
  done = done && fchmod(fd, mode) == 0 && fsync(fd) == 0;
  done = done && rename(next.c_str(), path.c_str()) == 0;
  // Before close, which may change it.
  const int error = errno;
  close(fd);
  if (done) return absl::OkStatus();
  // The file may hold the secret already.
  unlink(next.c_str());
  return Failed(path, error);
}

}  // namespace

// For tokens and keys. A secret that others can read is refused, so that its
// owner notices.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  // A pipe must not make anybody wait. Links are followed: that is how
  // Kubernetes mounts secrets.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Failed(path, errno);
  absl::StatusOr<std::string> text = std::string();
  if (absl::Status s = CheckPrivate(fd, path); !s.ok()) {
    text = s;
  } else {
    text = ReadAll(fd, path);
  }
  close(fd);
  return text;
}

absl::Status WritePrivateFile(const std::string& path,
                              const std::string& text) {
  return Replace(path, text, 0600);
}

absl::Status WritePublicFile(const std::string& path, const std::string& text) {
  return Replace(path, text, 0644);
}

}  // namespace traincheck
