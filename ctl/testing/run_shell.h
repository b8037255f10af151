// `traincheckctl run` of a line for the shell.
//
// Threads: any.
#ifndef TRAINCHECK_CTL_TESTING_RUN_SHELL_H_
#define TRAINCHECK_CTL_TESTING_RUN_SHELL_H_

#include <string>
#include <vector>

#include "ctl/testing/process.h"

namespace traincheck::ctl {

// A port of loopback on which nothing listens: "discard" on a system port.
inline constexpr char kNobody[] = "127.0.0.1:9";

inline ProcessResult RunShell(const std::vector<std::string>& options,
                              const std::string& script,
                              const std::string& server = kNobody) {
  std::vector<std::string> arguments = {"--server", server, "run"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return RunProcess(Ctl(arguments));
}

inline int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TESTING_RUN_SHELL_H_
