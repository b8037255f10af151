#include "ctl/report.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/tls_probe.h"
#include "ctl/exit_codes.h"

namespace traincheck::ctl {
namespace {

// For a handshake of our own, see below.
constexpr absl::Duration kProbePatience = absl::Seconds(2);

}  // namespace

void WriteToStderr(const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n =
        write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // Nobody reads stderr: there is no one to tell.
    written += static_cast<size_t>(n);
  }
}

void Complain(const std::string& message) {
  WriteToStderr(absl::StrCat("traincheckctl: ", message, "\n"));
}

std::string UnreachableMessage(const absl::Status& status,
                               const std::string& server) {
  // gRPC says that a server is unavailable also where its certificate is
  // refused. A handshake of our own finds out, so that nobody looks for a
  // daemon that runs.
  const char* const ca = std::getenv("TRAINCHECK_TLS_CA");
  const std::string wrong =
      WhatIsWrongWithTls(server, ca == nullptr ? "" : ca, kProbePatience);
  if (!wrong.empty()) {
    return absl::StrCat("no connection to traincheckd at ", server, ": ",
                        wrong);
  }
  return absl::StrCat("no traincheckd answers at ", server, " (",
                      status.message(),
                      "); start it there, or name another address with "
                      "--server or TRAINCHECK_SERVER");
}

int ReportFailedCall(const absl::Status& status, const std::string& server) {
  if (absl::IsUnavailable(status)) {
    Complain(UnreachableMessage(status, server));
    return kExitUnreachable;
  }
  // Every other status is an answer of the server, whose message says what is
  // wrong.
  Complain(std::string(status.message()));
  return kExitServerError;
}

}  // namespace traincheck::ctl
