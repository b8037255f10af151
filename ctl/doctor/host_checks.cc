#include "ctl/doctor/host_checks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace traincheck::ctl {
namespace {

// Rings of a process: 4 MiB for its main thread, the others smaller.
constexpr off_t kRingBytes = 4 << 20;
constexpr rlim_t kFewDescriptors = 256;
// The default limit of a spool folder.
constexpr uint64_t kSpoolBytes = uint64_t{1} << 30;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FallbackSpool() {
  return absl::StrCat("/tmp/traincheck-", getuid());
}

// As agent/relay/options does.
std::string SpoolFolder() {
  std::string given = Variable("TRAINCHECK_SPOOL_DIR");
  if (!given.empty()) return given;
  const std::string state = Variable("XDG_STATE_HOME");
  if (!state.empty()) return state + "/traincheck/spool";
  const std::string home = Variable("HOME");
  return home.empty() ? FallbackSpool()
                      : home + "/.local/state/traincheck/spool";
}

// The folder, or what exists of the path to it.
std::filesystem::path Existing(std::filesystem::path folder) {
  std::error_code error;
  folder = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(folder, error) &&
         folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  return folder;
}

}  // namespace

Finding CheckSharedMemory() {
  Finding finding = {"shared memory", Health::kOk, "memfd_create works", ""};
  const int memory = memfd_create("traincheck-doctor", MFD_CLOEXEC);
  if (memory < 0 || ftruncate(memory, kRingBytes) != 0) {
    finding = {"shared memory", Health::kFail,
               absl::StrCat("no ring can be made: ", std::strerror(errno)),
               "allow memfd_create (seccomp) and files of 4 MiB (ulimit -f)"};
  }
  if (memory >= 0) close(memory);
  return finding;
}

Finding CheckLimits() {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= kFewDescriptors) {
    return {"limits", Health::kOk, absl::StrCat(files.rlim_cur, " open files"),
            ""};
  }
  return {"limits", Health::kWarn,
          absl::StrCat("only ", files.rlim_cur, " open files"),
          "raise \"ulimit -n\": each thread's ring needs one for a moment"};
}

Finding CheckSpool() {
  const std::string folder = SpoolFolder();
  const std::filesystem::path existing = Existing(folder);
  struct statvfs disk = {};
  if (access(existing.c_str(), W_OK | X_OK) != 0) {
    const std::string why = std::strerror(errno);
    const bool fallback = access("/tmp", W_OK | X_OK) == 0;
    return {"spool", fallback ? Health::kWarn : Health::kFail,
            absl::StrCat(folder, ": ", why,
                         fallback ? "; relays use " + FallbackSpool() : ""),
            "name a folder that can be written in TRAINCHECK_SPOOL_DIR: it "
            "keeps records while the server is away"};
  }
  if (statvfs(existing.c_str(), &disk) != 0) {
    return {"spool", Health::kWarn,
            absl::StrCat(folder, ": ", std::strerror(errno)), ""};
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::string text =
      absl::StrCat(folder, ", ", free >> 20, " MiB free on its disk");
  if (free >= kSpoolBytes) return {"spool", Health::kOk, text, ""};
  return {"spool", Health::kWarn, text,
          "set TRAINCHECK_SPOOL_LIMIT below that, or TRAINCHECK_SPOOL_DIR to "
          "a larger disk"};
}

}  // namespace traincheck::ctl
