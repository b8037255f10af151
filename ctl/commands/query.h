// The shape that all asking commands share: connect, ask, print.
#ifndef TRAINCHECK_CTL_COMMANDS_QUERY_H_
#define TRAINCHECK_CTL_COMMANDS_QUERY_H_

#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"

namespace traincheck::ctl {

// How an answer is printed: text for people or JSON, newline included.
template <typename Answer>
struct Printer {
  std::function<std::string(const Answer&)> table;
  std::function<std::string(const Answer&)> json;
};

// Prints what ask(client) answers on stdout; returns the exit code.
template <typename Answer, typename Ask>
int Query(const Context& context, Ask ask, const Printer<Answer>& printer) {
  auto client = Client::Make(context.server);
  if (!client.ok()) return ReportFailedCall(client.status(), context.server);
  const absl::StatusOr<Answer> answer = ask(**client);
  if (!answer.ok()) return ReportFailedCall(answer.status(), context.server);
  std::cout << (context.json() ? printer.json : printer.table)(*answer)
            << std::flush;
  return kExitDone;
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_QUERY_H_
