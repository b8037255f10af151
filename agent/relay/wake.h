// Interrupts a loop's poll from any thread.
//
// Threads: Set is safe on any thread; the rest is the loop's.
#ifndef TRAINCHECK_AGENT_RELAY_WAKE_H_
#define TRAINCHECK_AGENT_RELAY_WAKE_H_

#include <sys/eventfd.h>

#include "agent/relay/unique_fd.h"

namespace traincheck::agent {

class Wake {
 public:
  Wake() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;

  // To poll for reading.
  int fd() const { return event_.get(); }
  void Set() {
    // Fails only when it is set to the brim already.
    [[maybe_unused]] const int result = eventfd_write(event_.get(), 1);
  }
  void Clear() {
    eventfd_t count;
    [[maybe_unused]] const int result = eventfd_read(event_.get(), &count);
  }

 private:
  const UniqueFd event_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_WAKE_H_
