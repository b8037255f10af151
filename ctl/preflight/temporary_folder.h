// Threads: compatible.
#ifndef TRAINCHECK_CTL_PREFLIGHT_TEMPORARY_FOLDER_H_
#define TRAINCHECK_CTL_PREFLIGHT_TEMPORARY_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// A new folder that nobody else may look into (mode 0700), until its end.
class TemporaryFolder {
 public:
  // Fails only where none can be made, which the message says.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Make();
  // Removes it with all that is in it.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // Of a file in it.
  std::string Path(const std::string& name) const;
  // All of the file; empty where it cannot be read.
  std::string Read(const std::string& name) const;

 private:
  explicit TemporaryFolder(const std::string& folder) : folder_(folder) {}

  const std::string folder_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_PREFLIGHT_TEMPORARY_FOLDER_H_
