// `.traincheck.yaml`: what a repository says of its trainings, for everybody
// who starts one from it (docs/configuration.md).
#ifndef TRAINCHECK_CTL_RUN_REPOSITORY_FILE_H_
#define TRAINCHECK_CTL_RUN_REPOSITORY_FILE_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

inline constexpr char kRepositoryFile[] = ".traincheck.yaml";

struct SilencedRule {
  std::string rule;  // its id
  std::string reason;
};

struct RepositoryFile {
  std::string path;        // "": there is none
  std::string experiment;  // "": not said
  std::string check;       // sets, "A,B@2"; "": not said
  std::optional<bool> builtin;
  std::vector<SilencedRule> silenced;
};

// That of `folder` or the nearest folder above, up to the root of the
// repository (which has .git) that `folder` is in; without a repository only
// that of `folder`, so that no stranger's file is read. InvalidArgument with
// file, line and what is wrong.
[[nodiscard]] absl::StatusOr<RepositoryFile> FindRepositoryFile(
    const std::filesystem::path& folder);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_REPOSITORY_FILE_H_
