// What a relay left in a spool file, for the one that goes on with it.
//
// Threads: externally synchronised (the relay's loop).
#ifndef TRAINCHECK_AGENT_RELAY_SPOOL_LOAD_H_
#define TRAINCHECK_AGENT_RELAY_SPOOL_LOAD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/relay/batch_trim.h"
#include "agent/relay/spool_file.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

// One batch that the server had not acknowledged; its payload stays on disk.
struct SpooledBatch {
  uint64_t number = 0;
  SpoolFile::Offset offset = 0;
  uint64_t payload_bytes = 0;
  Slices slices;
};

struct LoadedSpool {
  std::unique_ptr<SpoolFile> file;
  v1::Hello hello;
  std::vector<SpooledBatch> batches;  // numbers rise
  std::optional<v1::Goodbye> goodbye;
  // What the process had defined before the batches, as batches without
  // numbers; empty if the relay could not leave it.
  std::vector<std::shared_ptr<const v1::Batch>> definitions;
  // Above all numbers in the file.
  uint64_t next_number = 0;
  SpoolFile::Damage damage;
};

// Takes the file over. Aborted: somebody else owns it. NotFound: its owner has
// delivered and deleted it. DataLoss: it is not a spool file any more.
// Unimplemented: a later version wrote it.
[[nodiscard]] absl::StatusOr<LoadedSpool> LoadSpool(SpoolDirectory* directory,
                                                    const std::string& path);

// Who wrote the file, without taking it over; errors as ReadSpoolHead;
// NotFound: the file has been deleted.
struct SpoolOwner {
  v1::Hello hello;
  uint64_t pid_namespace = 0;
};
[[nodiscard]] absl::StatusOr<SpoolOwner> ReadSpoolOwner(
    const std::string& path);

// Puts a damaged file aside, as PATH.damaged, so that nobody meets it again.
// Returns its new path; the old one if it cannot be renamed.
std::string SetDamagedAside(const std::string& path);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_LOAD_H_
