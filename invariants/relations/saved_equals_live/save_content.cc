#include "invariants/relations/saved_equals_live/save_content.h"

#include <string>

#include "base/hash.h"
#include "invariants/relations/saved_equals_live/saved_calls.h"

namespace traincheck {

namespace {

void Append(uint64_t number, std::string* bytes) {
  *bytes += std::to_string(number) + ' ';
}

}  // namespace

// Hashes, since this is kept for each kind of save until the next one, and a
// file may have thousands of entries.
SaveContent ContentOf(const SavedCheckpoint& checkpoint) {
  SaveContent content;
  std::string like;
  std::string digests;
  // Two saves from different lines are of different kinds, even with equal
  // keys: one may keep the best state and one the last.
  Append(checkpoint.call.function_id, &like);
  Append(checkpoint.call.site, &like);
  for (const SavedEntry& entry : checkpoint.entries) {
    like += entry.key + ' ' + entry.dtype + ' ';
    for (const uint64_t size : entry.shape) Append(size, &like);
    like += '\n';
    if (entry.dtype.empty()) continue;  // no tensor
    content.unread |= !entry.digest;
    // `unread` says that such a hash proves nothing.
    Append(entry.digest.value_or(0), &digests);
    if (IsFloating(entry.dtype)) {
      content.floating_elements += Elements(entry.shape);
    }
  }
  content.like = StableHash(like);
  content.digests = StableHash(digests);
  return content;
}

}  // namespace traincheck
