// Why a client and a server do not understand each other, in words. gRPC says
// only that a handshake has failed.
//
// Threads: pure but for the connection that it makes.
#ifndef TRAINCHECK_BASE_TLS_PROBE_H_
#define TRAINCHECK_BASE_TLS_PROBE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace traincheck {

// Connects to host:port as a client would that pins the authority `ca_file`
// ("": one that speaks plain text) and says what is wrong between the two:
// another authority, another host, an expired certificate, TLS on one side
// alone. "" if nothing of that kind is, or nobody listens there. Takes at most
// `patience` or so.
std::string WhatIsWrongWithTls(absl::string_view address,
                               const std::string& ca_file,
                               absl::Duration patience);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_TLS_PROBE_H_
