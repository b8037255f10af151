// Backwards that are open on any thread: what engine threads call belongs to
// one of them.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_OPEN_BACKWARDS_H_
#define TRAINCHECK_AGENT_CAPTURE_OPEN_BACKWARDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/capture/thread_recorder.h"

namespace traincheck::agent {

struct OpenBackward {
  uint32_t ring;
  uint64_t call;  // each ring has its own numbers
};

// A call that began at `depth` of the ring's stack ends, and takes off the
// stack what is above it. With greenlets calls end in any order: that of
// another may have taken this one off before. What stayed would be the parent
// of all that engine threads call from here on.
inline void CloseBackwards(uint32_t ring, const std::vector<OpenCall>& open,
                           size_t depth, uint64_t call,
                           std::vector<OpenBackward>* backwards) {
  if (backwards->empty()) return;
  // Numbers rise along the stack.
  const uint64_t above = open.size() > depth ? open[depth].number : UINT64_MAX;
  std::erase_if(*backwards, [&](const OpenBackward& backward) {
    return backward.ring == ring &&
           (backward.call == call || backward.call >= above);
  });
}

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_OPEN_BACKWARDS_H_
