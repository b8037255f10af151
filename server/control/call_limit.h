// How many calls of one kind may be open at once.
//
//   const absl::StatusOr<CallLimit::Slot> slot = limit.Enter();
//   if (!slot.ok()) return slot.status();   // until slot is destroyed
//
// Threads: safe on any thread. Slots must not outlive their limit.
#ifndef TRAINCHECK_SERVER_CONTROL_CALL_LIMIT_H_
#define TRAINCHECK_SERVER_CONTROL_CALL_LIMIT_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace traincheck::server {

class CallLimit {
 public:
  struct Leave {
    void operator()(CallLimit* limit) const { --limit->open_; }
  };
  using Slot = std::unique_ptr<CallLimit, Leave>;

  // `calls`: what they are, for people.
  CallLimit(const char* calls, int limit) : calls_(calls), limit_(limit) {}
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

  // ResourceExhausted, naming the limit.
  [[nodiscard]] absl::StatusOr<Slot> Enter() {
    const int open = ++open_;
    Slot slot(this);
    if (open <= limit_) return slot;
    return absl::ResourceExhaustedError(
        absl::StrCat(limit_, " ", calls_,
                     " are open, which is the limit: try again when one of "
                     "them has ended"));
  }

 private:
  const char* const calls_;
  const int limit_;
  std::atomic<int> open_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_CALL_LIMIT_H_
