#include "server/sets/set_parts.h"

#include <string>

namespace traincheck::server {

void SendInParts(const v1::SetDetail& set,
                 const std::function<bool(const v1::SetPart&)>& send) {
  v1::SetPart part;
  *part.mutable_summary() = set.summary();
  size_t bytes = 0;
  for (const v1::Invariant& invariant : set.invariants()) {
    *part.add_invariants() = invariant;
    // Summed up as they are added: the size of the whole part, asked for each
    // rule, would cost the square of their number.
    bytes += invariant.ByteSizeLong();
    if (bytes < kSetPartBytes) continue;
    if (!send(part)) return;
    part.Clear();
    bytes = 0;
  }
  // In pieces: one string may be larger than a message may be.
  const std::string& json = set.json();
  for (size_t from = 0; from < json.size(); from += kSetPartBytes) {
    part.set_json(json.substr(from, kSetPartBytes));
    if (!send(part)) return;
    part.Clear();
  }
  if (part.ByteSizeLong() > 0) send(part);
}

}  // namespace traincheck::server
