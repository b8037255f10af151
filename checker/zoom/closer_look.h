// What a zoom has shown, in words: how the functions that an incident is about
// were called, and for each of its variables the sizes of what was recorded,
// whether a step changed it, and which ranks and rows differ.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_ZOOM_CLOSER_LOOK_H_
#define TRAINCHECK_CHECKER_ZOOM_CLOSER_LOOK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checker/zoom/zoomed_process.h"

namespace traincheck {

struct Observation {
  // "torch.nn.functional.dropout at train.py:31", "the gradient of
  // Net.fc.weight before the optimizer's step"
  std::string what;
  std::vector<int32_t> ranks;  // on which it was seen
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  std::string seen;
};

// In the order of a step: calls, then variables. `ranks`: by rank.
std::vector<Observation> LookCloser(
    const std::map<int32_t, ZoomedProcess>& ranks);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_ZOOM_CLOSER_LOOK_H_
