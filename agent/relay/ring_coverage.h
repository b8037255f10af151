// What is known of a ring beyond its memory: from the server and the spool.
#ifndef TRAINCHECK_AGENT_RELAY_RING_COVERAGE_H_
#define TRAINCHECK_AGENT_RELAY_RING_COVERAGE_H_

#include <cstdint>
#include <map>
#include <optional>

namespace traincheck::agent {

// How far a ring's bytes are safe (stored or spooled), and how far they are
// safe or held. `records`: so many were that from the ring's beginning on;
// nothing: some in between are nowhere.
struct RingCoverage {
  uint64_t safe = 0;
  uint64_t position = 0;
  std::optional<uint64_t> records = std::nullopt;
};
using RingCoverages = std::map<uint32_t, RingCoverage>;

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_RING_COVERAGE_H_
