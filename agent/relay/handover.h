// The socket between training processes and their relay: who connects, and
// the rings that they hand over (agent/ring/ring_abi.h).
//
// Threads: all functions are safe on different sockets; none blocks.
#ifndef TRAINCHECK_AGENT_RELAY_HANDOVER_H_
#define TRAINCHECK_AGENT_RELAY_HANDOVER_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/relay/unique_fd.h"
#include "agent/ring/ring_abi.h"

namespace traincheck::agent {

// FailedPrecondition if `fd` is no listening unix SOCK_SEQPACKET socket.
// Makes it non-blocking.
[[nodiscard]] absl::Status PrepareListener(int fd);

struct Peer {
  UniqueFd socket;
  uint32_t pid = 0;
  // Readable when the process is dead; invalid where the kernel has no pidfd
  // or the process is dead already.
  UniqueFd pidfd;
};

// The next peer that waits; nothing if none does. PermissionDenied: a peer of
// another user, whose connection is closed by now.
[[nodiscard]] absl::StatusOr<std::optional<Peer>> AcceptPeer(int listener);

struct Handover {
  RingHandover message;
  UniqueFd memory;
};

// The next message of a peer; nothing if there is none now. OutOfRange: the
// peer has closed its end. InvalidArgument: the message is no handover.
[[nodiscard]] absl::StatusOr<std::optional<Handover>> ReceiveHandover(
    int socket);

// Tells the peer that its last ring is held now.
void AnswerHasRing(int socket);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_HANDOVER_H_
