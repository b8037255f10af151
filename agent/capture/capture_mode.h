// What this process records now, and whose turn it is where large tensors take
// turns. Set between two steps (events.h, SetCaptureMode; hooks/control.py).
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_CAPTURE_MODE_H_
#define TRAINCHECK_AGENT_CAPTURE_CAPTURE_MODE_H_

#include <cstdint>

#include "proto/record_format.h"

namespace traincheck::agent {

inline constinit CaptureMode g_capture_mode = CaptureMode::kAll;

// Large tensors are digested in the steps where theirs is the turn: those with
// (hash of the variable's name + step) % turns == 0.
struct Rotation {
  uint32_t turns = 1;
  uint64_t step = 0;

  bool HasTurn(uint32_t name_hash) const {
    return turns <= 1 || (name_hash + step) % turns == 0;
  }
};
inline constinit Rotation g_rotation = {};

// Smaller ones cost less than the record that says that it is not their turn.
inline constexpr uint64_t kRotatedBytes = 64u << 10;

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CAPTURE_MODE_H_
