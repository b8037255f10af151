// What a save holds, in short: which one it is like, what it holds, how large.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVE_CONTENT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVE_CONTENT_H_

#include <cstdint>
#include <set>

#include "invariants/relations/saved_equals_live/saved_checkpoint.h"

namespace traincheck {

struct SaveContent {
  uint64_t like = 0;     // a hash of function, line, keys, types and shapes
  uint64_t digests = 0;  // a hash of the tensors' digests
  uint64_t floating_elements = 0;
  bool unread = false;  // some tensor could not be read
};

SaveContent ContentOf(const SavedCheckpoint& checkpoint);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVE_CONTENT_H_
