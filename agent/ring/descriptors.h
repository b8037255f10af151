// File descriptors of ours in a process that is not ours: high up, away from
// the numbers that programs use by hand, and none where there are few.
//
// Threads: any. Async-signal-safe.
#ifndef TRAINCHECK_AGENT_RING_DESCRIPTORS_H_
#define TRAINCHECK_AGENT_RING_DESCRIPTORS_H_

namespace traincheck::agent {

inline constexpr int kLowestDescriptor = 100;

// The same file at kLowestDescriptor or above, close-on-exec; `fd` is closed
// then. `fd` itself where the limit allows none.
[[nodiscard]] int MoveUp(int fd);

// May this process spare a descriptor for each ring (at most 64)?
[[nodiscard]] bool HasDescriptorsToSpare();

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RING_DESCRIPTORS_H_
