// What every command says when it fails, and with which code it ends.
#ifndef TRAINCHECK_CTL_REPORT_H_
#define TRAINCHECK_CTL_REPORT_H_

#include <string>

#include "absl/status/status.h"

namespace traincheck::ctl {

// "traincheckctl: MESSAGE" on stderr.
void Complain(const std::string& message);

// Complains about a failed call and returns kExitUnreachable (the message
// names the address and what to do) or kExitServerError (the server's own
// message).
int ReportFailedCall(const absl::Status& status, const std::string& server);

// The sentence for an address where nobody answers.
std::string UnreachableMessage(const absl::Status& status,
                               const std::string& server);

// `text` on stderr in one write, so that lines of the training do not end up
// within it.
void WriteToStderr(const std::string& text);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_REPORT_H_
