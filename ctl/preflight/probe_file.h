// The file in which a training says what came of its hand-made backwards: in a
// temporary folder that nobody else may look into.
//
// Threads: compatible.
#ifndef TRAINCHECK_CTL_PREFLIGHT_PROBE_FILE_H_
#define TRAINCHECK_CTL_PREFLIGHT_PROBE_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

class ProbeFile {
 public:
  // Fails only where no folder can be made.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<ProbeFile>> Make();
  // Removes file and folder.
  ~ProbeFile();
  ProbeFile(const ProbeFile&) = delete;
  ProbeFile& operator=(const ProbeFile&) = delete;

  std::string path() const { return folder_ + "/probed.jsonl"; }
  // Empty where nothing was written.
  std::string Read() const;

 private:
  explicit ProbeFile(const std::string& folder) : folder_(folder) {}

  const std::string folder_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_PREFLIGHT_PROBE_FILE_H_
