#include "ctl/run/plan_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;

// Of a file's name, which has at most 255 characters.
constexpr size_t kMaxSetsInName = 128;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

// For who has no home, as the relay has it for its spool. Anybody may make a
// folder of this name first: it has to be ours alone.
absl::StatusOr<std::string> TemporaryFolder() {
  std::string folder = Environment("TMPDIR");
  if (folder.empty()) folder = "/tmp";
  absl::StrAppend(&folder, "/traincheck-", geteuid());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return CannotWrite(folder);
  }
  struct stat status;
  const bool ours = lstat(folder.c_str(), &status) == 0 &&
                    S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
                    (status.st_mode & 077) == 0;
  if (!ours) {
    return absl::UnavailableError(
        absl::StrCat(folder, " is not a folder of this user alone; set HOME"));
  }
  return folder;
}

// A folder that outlives this login if there is one: processes of the training
// may read the file days later.
absl::StatusOr<std::string> PlanFolder() {
  const std::string state = Environment("XDG_STATE_HOME");
  if (!state.empty()) return state + "/traincheck/plans";
  const std::string home = Environment("HOME");
  if (!home.empty()) return home + "/.local/state/traincheck/plans";
  absl::StatusOr<std::string> temporary = TemporaryFolder();
  if (temporary.ok()) *temporary += "/plans";
  return temporary;
}

// By a rename, so that a training that starts meanwhile reads all of it. Jobs
// that start together write the same file, each under a name of its own first:
// a random one, because hosts share a home, and process numbers are those of
// one host. mkstemp would make a file that no other user can read, whatever the
// umask says.
absl::Status WriteWhole(const std::string& path, const std::string& text) {
  std::random_device random;  // 32 bits each time
  const std::string temporary =
      absl::StrCat(path, ".", absl::Hex(random()), absl::Hex(random()));
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << text;
    // A full disk shows here, before the file gets its name.
    if (!file.flush()) return CannotWrite(temporary);
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (!error) return absl::OkStatus();
  fs::remove(temporary, error);
  return CannotWrite(path);
}

}  // namespace

// A file, because the agent reads it before the first call. From the server a
// plan comes only after the first steps.
absl::StatusOr<std::string> FetchPlanFile(Client* client,
                                          const std::string& set) {
  const auto plan = client->GetSetPlan(set);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<std::string> folder = PlanFolder();
  if (!folder.ok()) return folder.status();
  std::error_code error;
  fs::create_directories(*folder, error);
  if (error) return CannotWrite(*folder);
  std::string path =
      // With the hash of its content: a file that trainings use never changes
      // when the set gets another version.
      absl::StrCat(*folder, "/", set.size() > kMaxSetsInName ? "sets" : set,
                   "-", HashText(plan->json()), ".json");
  absl::Status written = WriteWhole(path, plan->json());
  if (!written.ok()) return written;
  return path;
}

bool WantsPlanOfSet(const std::string& check_set, const std::string& plan) {
  // A plan that the user names says all that is to be recorded.
  return !check_set.empty() && plan.empty() &&
         Environment("TRAINCHECK_PLAN").empty();
}

}  // namespace traincheck::ctl
