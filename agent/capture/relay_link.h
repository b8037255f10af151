// The agent's end of the connection to its relay: hands rings over and knows
// whether the relay lives. Everything on it is non-blocking.
//
// The relay listens on an abstract SOCK_SEQPACKET address that this process
// (or the one that it was forked from) made; a forked child connects to the
// same address and gets a stream of its own.
//
// Threads: externally synchronised (in the agent: GIL held); alive() any.
#ifndef TRAINCHECK_AGENT_CAPTURE_RELAY_LINK_H_
#define TRAINCHECK_AGENT_CAPTURE_RELAY_LINK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "agent/ring/ring_writer.h"

namespace traincheck {

class RelayLink {
 public:
  RelayLink() = default;
  RelayLink(const RelayLink&) = delete;
  RelayLink& operator=(const RelayLink&) = delete;

  // Makes an address, starts the relay on it and connects. "": done; else
  // what failed.
  [[nodiscard]] std::string Start(const std::string& program);
  // Connects to the relay of the process that this one was forked from.
  [[nodiscard]] std::string Join(const std::string& address);

  // The abstract address, its leading NUL included; "" before Start.
  const std::string& address() const { return address_; }

  // Hands the ring over, now or in a later Retry. The ring's file is closed
  // once the relay's socket has it.
  // REQUIRES: the ring outlives this link.
  void HandOver(RingWriter* ring);
  void Retry();

  // False once the relay has closed its end, or if there is none.
  bool alive() const;

  // In a forked child: closes the inherited descriptor, if it still is ours.
  // Safe in an atfork handler.
  void Abandon();

 private:
  std::string Connect();
  // The relay's answers say nothing that is needed here; but were they left
  // unread at the end, the relay would see a reset instead of an end.
  void ReadAnswers();
  bool Send(RingWriter* ring);
  bool OwnsDescriptor() const;

  std::string address_;
  std::vector<RingWriter*> waiting_;
  int socket_ = -1;
  // Users close descriptors that are not theirs (daemons do): the cookie says
  // whether the number still means our socket.
  uint64_t cookie_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_CAPTURE_RELAY_LINK_H_
