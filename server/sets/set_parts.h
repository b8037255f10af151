// A set in messages of a size that every client takes.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_SETS_SET_PARTS_H_
#define TRAINCHECK_SERVER_SETS_SET_PARTS_H_

#include <cstddef>
#include <functional>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::server {

// Bytes after which a part ends. One invariant is never divided.
inline constexpr size_t kSetPartBytes = 1 << 20;

// Gives `send` the parts of `set` one after the other, the summary first, until
// it returns false or all were sent.
void SendInParts(const v1::SetDetail& set,
                 const std::function<bool(const v1::SetPart&)>& send);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SETS_SET_PARTS_H_
