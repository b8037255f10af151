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

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Make() {
  std::error_code error;
  fs::path parent = fs::temp_directory_path(error);
  // TMPDIR may name a folder that is not there, and a preflight is possible all
  // the same.
  if (error) parent = "/tmp";
  std::string folder = (parent / "traincheck-preflight-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {  // mode 0700
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", folder));
  }
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(folder));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  // What cannot be removed stays: the result of the command does not depend on
  // it.
  fs::remove_all(folder_, error);
}

std::string TemporaryFolder::Path(const std::string& name) const {
  return absl::StrCat(folder_, "/", name);
}

std::string TemporaryFolder::Read(const std::string& name) const {
  std::ifstream file(Path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace traincheck::ctl
