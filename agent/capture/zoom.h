// The variables that a plan zooms in on (docs/capture-plan.md): wherever their
// content is digested, statistics and digests of their rows are recorded too.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_ZOOM_H_
#define TRAINCHECK_AGENT_CAPTURE_ZOOM_H_

#include <cstdint>
#include <string>
#include <vector>

namespace traincheck::agent {

// A zoomed tensor of more has no row digests: it is one of several that are
// recorded in full in each step, and a ring has 4 MiB.
inline constexpr uint64_t kMaxZoomedRows = 1u << 14;

// These instead of those before, by name: "Net.fc.weight".
void ZoomInOn(const std::vector<std::string>& variables);

// By number. Fast where nothing is zoomed in on.
bool IsZoomedInOn(uint32_t variable);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_ZOOM_H_
