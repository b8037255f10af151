// `traincheck-relay --send-spool [DIR]`: delivers by hand what relays left in a
// folder, or wherever relays of this user spool here; --list-spool [DIR] says
// what there is. One JSON object a line on stdout for each spool file:
//
//   file, pid, host, run, batches, result, reason
//
// result: "delivered"; "left": to be delivered, but only listed; "in_use": its
// process may live; "gone": a relay was
// faster; "damaged": set aside as FILE.damaged; "unreadable": not to be opened,
// or of a later version; "refused" by the server; "unreachable".
//
// Threads: one.
#ifndef TRAINCHECK_AGENT_RELAY_SEND_SPOOL_H_
#define TRAINCHECK_AGENT_RELAY_SEND_SPOOL_H_

#include <string>

#include "agent/relay/options.h"

namespace traincheck::agent {

// Exit codes, the same as traincheckctl's.
inline constexpr int kSendDone = 0;
inline constexpr int kSendBadInput =
    2;  // no such folder, damaged or unreadable files
inline constexpr int kSendRefused = 3;
inline constexpr int kSendUnreachable = 4;

// Both return the exit code, that of the worst file. `folder` "": all places.
int SendSpool(const RelayOptions& options, const std::string& folder);
// Changes nothing.
int ListSpool(const RelayOptions& options, const std::string& folder);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SEND_SPOOL_H_
