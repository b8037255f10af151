#include "ctl/doctor/host_checks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/spool_places.h"
#include "ctl/run/relay_program.h"

namespace traincheck::ctl {
namespace {

// Rings of a process: 4 MiB for its main thread, the others smaller.
constexpr off_t kRingBytes = 4 << 20;
// A training has files and sockets of its own; each ring needs a descriptor
// only until it is mapped and handed to the relay.
constexpr rlim_t kFewDescriptors = 256;
// The default limit of a spool folder.
constexpr uint64_t kSpoolBytes = uint64_t{1} << 30;
constexpr char kNameAFolder[] =
    "name a folder that can be written in TRAINCHECK_SPOOL_DIR: it keeps "
    "records while the server is away";

// In the order in which relays try them.
std::vector<SpoolPlace> Places() {
  const std::string named = SpoolSetting().value_or("");
  return SpoolPlaces(
      [&named](const char* name) -> const char* {
        return std::string_view(name) == "TRAINCHECK_SPOOL_DIR"
                   ? named.c_str()
                   : std::getenv(name);
      },
      getuid());
}

// The folder, or what exists of the path to it. Relays make what is missing, so
// this is where it shows whether they can.
std::filesystem::path Existing(std::filesystem::path folder) {
  std::error_code error;
  folder = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(folder, error) &&
         folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  return folder;
}

// "": a relay would spool there.
// The same conditions under which a relay passes a place over, so that doctor
// names the folder that relays take.
std::string WhatIsWrongWith(const SpoolPlace& place) {
  struct stat status = {};
  if (place.kind == SpoolPlace::Kind::kTemporary) {
    if (access(place.folder.c_str(), W_OK | X_OK) != 0) {
      return absl::StrCat(place.folder, ": ", std::strerror(errno));
    }
    // Anybody may have taken the name there.
    const std::string own = absl::StrCat(
        place.folder, "/", place.below.substr(0, place.below.find('/')));
    const bool there = lstat(own.c_str(), &status) == 0;
    const bool ours = S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
                      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    return there && !ours
               ? absl::StrCat(own, ": not a folder of this user alone")
               : "";
  }
  const std::filesystem::path existing = Existing(place.folder);
  if (access(existing.c_str(), W_OK | X_OK) == 0) return "";
  return absl::StrCat(place.folder, ": ", std::strerror(errno));
}

// `why`: what is wrong with the folder of the setting; "": nothing.
Finding SpoolFinding(const SpoolPlace& place, const std::string& why) {
  struct statvfs disk = {};
  if (statvfs(Existing(place.folder).c_str(), &disk) != 0) {
    return {"spool", Health::kWarn,
            absl::StrCat(place.folder, ": ", std::strerror(errno)), ""};
  }
  // f_bavail is what users other than root can still take.
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  std::string text = absl::StrCat("below ", place.folder, ", ", free >> 20,
                                  " MiB free on its disk");
  if (!why.empty()) {
    return {"spool", Health::kWarn, absl::StrCat(why, "; relays spool ", text),
            kNameAFolder};
  }
  if (free >= kSpoolBytes) return {"spool", Health::kOk, text, ""};
  return {"spool", Health::kWarn, text,
          "set TRAINCHECK_SPOOL_LIMIT below that, or TRAINCHECK_SPOOL_DIR to "
          "a larger disk"};
}

}  // namespace

Finding CheckSharedMemory() {
  Finding finding = {"shared memory", Health::kOk, "memfd_create works", ""};
  const int memory = memfd_create("traincheck-doctor", MFD_CLOEXEC);
  // With its size, because a limit on files (ulimit -f) holds for memory as
  // well.
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
  std::string why;
  const std::vector<SpoolPlace> places = Places();
  for (const SpoolPlace& place : places) {
    // The first usable one is the one that relays take.
    const std::string wrong = WhatIsWrongWith(place);
    if (wrong.empty()) return SpoolFinding(place, why);
    // Others are tried because the system may not have them.
    if (place.kind == SpoolPlace::Kind::kNamed) why = wrong;
  }
  return {"spool", Health::kFail,
          absl::StrCat("no folder can be written: ",
                       why.empty() ? WhatIsWrongWith(places.back()) : why),
          kNameAFolder};
}

}  // namespace traincheck::ctl
