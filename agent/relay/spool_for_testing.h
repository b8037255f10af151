// Reads a spool file that a relay left, as tests want to see it.
#ifndef TRAINCHECK_AGENT_RELAY_SPOOL_FOR_TESTING_H_
#define TRAINCHECK_AGENT_RELAY_SPOOL_FOR_TESTING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

struct SpoolContents {
  v1::Hello hello;
  uint64_t acknowledged = 0;
  std::vector<v1::Batch> batches;
  std::vector<v1::Batch> definitions;
  std::optional<v1::Goodbye> goodbye;
  bool torn = false;  // something behind the last whole entry
};

[[nodiscard]] absl::StatusOr<SpoolContents> ReadSpool(const std::string& path);

// Paths of all *.spool files in a folder, sorted.
std::vector<std::string> SpoolFiles(const std::string& folder);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_FOR_TESTING_H_
