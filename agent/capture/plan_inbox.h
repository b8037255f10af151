// Changes of the capture plan, as the relay sends them (agent/ring/ring_abi.h,
// PlanMessage). Of those that wait only the newest counts; one that is not
// newer than one that came before is not looked at, because a relay sends its
// plan again. Bad ones are refused with one line.
//
// Threads: externally synchronised. Nothing blocks.
#ifndef TRAINCHECK_AGENT_CAPTURE_PLAN_INBOX_H_
#define TRAINCHECK_AGENT_CAPTURE_PLAN_INBOX_H_

#include <cstdint>
#include <optional>
#include <string>

namespace traincheck::agent {

struct PlanChange {
  uint64_t version = 0;
  uint64_t from_step = 0;
  std::string json;
};

class PlanInbox {
 public:
  // Takes the next message off the socket, whatever it is. False: there is
  // none now.
  bool Receive(int socket);

  // The newest that has come since the last call; nullopt: none.
  std::optional<PlanChange> Take();

 private:
  std::optional<PlanChange> waiting_;
  std::optional<uint64_t> newest_;  // version
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_PLAN_INBOX_H_
