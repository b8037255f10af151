#include "ctl/run/installed_file.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;

// `hint`: how to look elsewhere.
absl::StatusOr<std::string> FindIn(const fs::path& folder,
                                   const std::string& name, const char* hint) {
  std::error_code error;
  const fs::path path = folder / name;
  // The folder is empty where /proc is not mounted, or where the variable is
  // set to nothing.
  if (folder.empty() || !fs::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat(name, " is not in ", folder.string(), hint));
  }
  return path.string();
}

// By the kernel's word: argv[0] may be a link, or a bare name that PATH has
// found.
fs::path FolderOfProgram() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace

absl::StatusOr<std::string> FindAgentFile(const std::string& name) {
  std::error_code error;
  const char* const named = std::getenv("TRAINCHECK_AGENT_DIR");
  const fs::path folder =
      named != nullptr ? fs::absolute(named, error) : FolderOfProgram();
  return FindIn(folder, name, " (TRAINCHECK_AGENT_DIR names another folder)");
}

absl::StatusOr<std::string> FindBesideProgram(const std::string& name) {
  return FindIn(FolderOfProgram(), name, ", beside this traincheckctl");
}

}  // namespace traincheck::ctl
