#include "ctl/report.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "ctl/exit_codes.h"

namespace traincheck::ctl {

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
  Complain(std::string(status.message()));
  return kExitServerError;
}

}  // namespace traincheck::ctl
