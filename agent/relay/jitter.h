// Waits of random length: a thousand relays that lost one server do not come
// back at one moment.
//
// Owned by the Delivery. Threads: externally synchronised.
#ifndef TRAINCHECK_AGENT_RELAY_JITTER_H_
#define TRAINCHECK_AGENT_RELAY_JITTER_H_

#include <chrono>
#include <random>

#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

class Jitter {
 public:
  // By all that tells processes apart: those of containers have one pid.
  explicit Jitter(const v1::ProcessIdentity& process);

  // Between half of `wait` and all of it.
  std::chrono::milliseconds Of(std::chrono::milliseconds wait);

 private:
  std::minstd_rand random_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_JITTER_H_
