#include "ctl/preflight/probe_file.h"

#include <filesystem>
#include <system_error>

#include "ctl/preflight/temporary_folder.h"

namespace traincheck::ctl {

absl::StatusOr<std::unique_ptr<ProbeFile>> ProbeFile::Make() {
  const absl::StatusOr<std::string> folder = MakeTemporaryFolder();
  if (!folder.ok()) return folder.status();
  return std::unique_ptr<ProbeFile>(new ProbeFile(*folder));
}

ProbeFile::~ProbeFile() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

std::string ProbeFile::Read() const { return ReadWholeFile(path()); }

}  // namespace traincheck::ctl
