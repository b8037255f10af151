// The agent's end of the connection to its relay: hands rings over, sees when
// the relay has died and starts another one. Everything on it is non-blocking
// but for the start of a relay.
//
// The relay listens on an abstract SOCK_SEQPACKET address that this process
// (or the one that it was forked from) made; a forked child connects to the
// same address and gets a stream of its own. After its relay's death each
// process starts one for itself.
//
// An abstract address is free again when its relay is dead, and anybody on the
// host may take it then. So whoever connects asks the kernel whose listener
// answered before it hands anything over: it must be of this user and made by
// the process that made the address. (The kernel notes both at listen(), which
// the relay itself never calls.)
//
// Threads: externally synchronised (in the agent: GIL held).
#ifndef TRAINCHECK_AGENT_CAPTURE_RELAY_LINK_H_
#define TRAINCHECK_AGENT_CAPTURE_RELAY_LINK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/capture/plan_inbox.h"
#include "agent/ring/ring_writer.h"

namespace traincheck::agent {

// How often a process starts another relay in place of one that died.
inline constexpr int kMaxRelayRestarts = 3;

class RelayLink {
 public:
  enum class State {
    kAlive,
    kDead,
    kUnknown,  // the program has closed our socket
  };

  RelayLink() = default;
  RelayLink(const RelayLink&) = delete;
  RelayLink& operator=(const RelayLink&) = delete;

  // Makes an address, starts the relay on it and connects. "": done; else
  // what failed.
  [[nodiscard]] std::string Start(const std::string& program);
  // Connects to the relay of the process that this one was forked from. ""; or
  // why not: it is dead, or somebody else sits on its address, which is logged.
  [[nodiscard]] std::string Join(const RelayLink& ancestor);
  // In place of a dead one: hands all rings over again. As Start.
  // REQUIRES: state() is kDead and may_restart().
  [[nodiscard]] std::string Restart(const std::string& program);
  bool may_restart() const { return restarts_ < kMaxRelayRestarts; }

  // The abstract address, its leading NUL included; "" before Start.
  const std::string& address() const { return address_; }

  // Hands the ring over, now or in a later Tend; the definitions come first.
  // Its file stays open for the next relay if it is up where nobody looks.
  // REQUIRES: the ring outlives this link.
  void HandOver(RingWriter* ring);

  // Reads what the relay sent, hands over what it had no room for.
  State Tend();
  State state() const { return Look(nullptr); }

  // The newest change of plan that the relay has sent since the last call.
  std::optional<PlanChange> TakePlan() { return inbox_.Take(); }

  // In a forked child: closes the inherited descriptors that still are ours.
  // Safe in an atfork handler.
  void Abandon();

 private:
  std::string StartNumber(const std::string& program, int number);
  std::string Connect();
  // "": the listener that answered is the one that the address was made for.
  std::string CheckListener() const;
  State Look(bool* has_messages) const;
  // Changes of plan, and answers that say nothing that is needed here; but were
  // they left unread at the end, the relay would see a reset instead of an end.
  void ReadMessages();
  void SendWaiting();
  bool Send(int file, const RingWriter& ring);
  bool OwnsDescriptor() const;

  std::string address_;
  // Who made the address, this process or one above it.
  uint32_t maker_pid_ = 0;
  uint32_t maker_uid_ = 0;
  std::vector<RingWriter*> rings_;
  size_t sent_ = 0;  // how many of rings_ this relay has got
  int restarts_ = 0;
  PlanInbox inbox_;
  int socket_ = -1;
  // Users close descriptors that are not theirs (daemons do): the cookie says
  // whether the number still means our socket.
  uint64_t cookie_ = 0;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_RELAY_LINK_H_
