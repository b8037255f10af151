// How many calls of one kind may be open at once, in all and of one owner.
//
//   const absl::StatusOr<CallLimit::Slot> slot = limit.Enter(owner);
//   if (!slot.ok()) return slot.status();   // until slot is destroyed
//
// Threads: safe on any thread. Slots must not outlive their limit.
#ifndef TRAINCHECK_SERVER_CONTROL_CALL_LIMIT_H_
#define TRAINCHECK_SERVER_CONTROL_CALL_LIMIT_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace traincheck::server {

class CallLimit {
 public:
  struct Leave {
    std::string owner;
    void operator()(CallLimit* limit) const { limit->LeaveOne(owner); }
  };
  using Slot = std::unique_ptr<CallLimit, Leave>;

  // The last `reserve` places are for owners who hold fewer than `each`.
  struct Share {
    int reserve = 0;
    int each = 0;
  };

  // `calls`: what they are, for people.
  CallLimit(const char* calls, int limit) : CallLimit(calls, limit, Share()) {}
  CallLimit(const char* calls, int limit, Share share)
      : calls_(calls), limit_(limit), share_(share) {}
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

  // ResourceExhausted, naming the limit.
  [[nodiscard]] absl::StatusOr<Slot> Enter(const std::string& owner = "") {
    absl::MutexLock lock(&mutex_);
    const auto at = open_of_.find(owner);
    const int own = at == open_of_.end() ? 0 : at->second;
    if (open_ >= limit_) return Refused(limit_, "which is the limit");
    if (open_ >= limit_ - share_.reserve && own >= share_.each) {
      return Refused(open_, absl::StrCat(own, " of them your own, and what is ",
                                         "left is for other owners"));
    }
    ++open_;
    ++open_of_[owner];
    return Slot(this, Leave{owner});
  }

 private:
  absl::Status Refused(int open, const std::string& why) const {
    return absl::ResourceExhaustedError(
        absl::StrCat(open, " ", calls_, " are open, ", why,
                     ": try again when one of them has ended"));
  }
  void LeaveOne(const std::string& owner) {
    absl::MutexLock lock(&mutex_);
    --open_;
    const auto at = open_of_.find(owner);
    if (--at->second == 0) open_of_.erase(at);
  }

  const char* const calls_;
  const int limit_;
  const Share share_;
  absl::Mutex mutex_;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> open_of_ ABSL_GUARDED_BY(mutex_);  // by owner
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_CALL_LIMIT_H_
