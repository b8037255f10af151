#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "ctl/commands/command_line.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"

namespace traincheck::ctl {
namespace {

// Of a pipe: `traincheckctl preflight ... | head` has seen enough.
bool ReaderIsGone() {
  pollfd out = {STDOUT_FILENO, 0, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

// Writes out what is left in the buffers of stdout; kExitOutput in the place of
// kExitDone if it cannot be, or what SIGPIPE gives, which some commands ignore.
int CodeOnceWritten(int code) {
  std::cout.flush();
  if (std::cout.good()) return code;
  if (ReaderIsGone()) {
    return code == kExitDone ? kExitSignalBase + SIGPIPE : code;
  }
  Complain(
      "stdout cannot be written, so what was asked for is not there, or not "
      "all of it: look whether its disk is full");
  return code == kExitDone ? kExitOutput : code;
}

}  // namespace
}  // namespace traincheck::ctl

// gRPC may still end a connection on a thread of its own: no destructors of
// globals run, of which OpenSSL's would take away what that thread uses.
int main(int argc, char** argv) {
  _exit(traincheck::ctl::CodeOnceWritten(
      traincheck::ctl::RunCommandLine(argc, argv)));
}
