#include "ctl/preflight/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace traincheck::ctl {

namespace fs = std::filesystem;

absl::StatusOr<std::string> MakeTemporaryFolder() {
  std::error_code error;
  fs::path parent = fs::temp_directory_path(error);
  if (error) parent = "/tmp";
  std::string folder = (parent / "traincheck-preflight-XXXXXX").string();
  if (mkdtemp(folder.data()) != nullptr) return folder;  // mode 0700
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", folder));
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace traincheck::ctl
