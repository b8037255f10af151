// Who a process is: its ProcessDef becomes the Hello of its stream.
//
// Threads: all functions are pure.
#ifndef TRAINCHECK_AGENT_RELAY_IDENTITY_H_
#define TRAINCHECK_AGENT_RELAY_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

struct Introduction {
  v1::Hello hello;
  // The process expects a better name for its run.
  bool run_is_provisional = false;
};

// Looks for the first ProcessDef in the beginning of the definition ring that
// names the run for good, else for the last one; nothing if there is none yet.
// `pid` is the peer's, from its socket.
// InvalidArgument: the record lacks boot id or start time, or is malformed.
// REQUIRES: definitions.data() is 8-byte aligned.
[[nodiscard]] absl::StatusOr<std::optional<Introduction>> FindIntroduction(
    std::string_view definitions, uint32_t pid);

// "BOOT-PID-TICKS-HASH.spool": names are printed and listed, so they have a
// hash of the image, which is a secret. Of an older agent, which draws no
// image, "BOOT-PID-TICKS.spool".
std::string SpoolName(const v1::ProcessIdentity& process);
// What earlier relays called it: "BOOT-PID-TICKS-IMAGE.spool".
std::string EarlierSpoolName(const v1::ProcessIdentity& process);
// Whose file it is, if it is of a process since this boot: pid and start time.
std::optional<v1::ProcessIdentity> ProcessOfSpoolName(std::string_view name,
                                                      const std::string& boot);
// Is it the name of a spool file of this process, whatever its image?
bool IsSpoolNameOf(std::string_view name, const v1::ProcessIdentity& process);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_IDENTITY_H_
