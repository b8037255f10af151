#include "ctl/run/plan_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "invariants/hash.h"

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "" if there is no home.
std::string PlanFolder() {
  const std::string state = Environment("XDG_STATE_HOME");
  if (!state.empty()) return state + "/traincheck/plans";
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.local/state/traincheck/plans";
}

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".", getpid());
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << text;
    if (!file.flush()) return CannotWrite(temporary);
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (!error) return absl::OkStatus();
  fs::remove(temporary, error);
  return CannotWrite(path);
}

}  // namespace

absl::StatusOr<std::string> FetchPlanFile(Client* client,
                                          const std::string& set) {
  const auto plan = client->GetSetPlan(set);
  if (!plan.ok()) return plan.status();
  const std::string folder = PlanFolder();
  if (folder.empty()) {
    return absl::UnavailableError("neither HOME nor XDG_STATE_HOME is set");
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return CannotWrite(folder);
  const std::string path =
      absl::StrCat(folder, "/", set, "-", HashText(plan->json()), ".json");
  const absl::Status written = WriteWhole(path, plan->json());
  if (!written.ok()) return written;
  return path;
}

bool WantsPlanOfSet(const std::string& check_set, const std::string& plan) {
  return !check_set.empty() && plan.empty() &&
         Environment("TRAINCHECK_PLAN").empty();
}

}  // namespace traincheck::ctl
