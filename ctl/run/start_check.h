// What `run` asks the server before it starts a training.
#ifndef TRAINCHECK_CTL_RUN_START_CHECK_H_
#define TRAINCHECK_CTL_RUN_START_CHECK_H_

#include <optional>
#include <string>

#include "ctl/client.h"

namespace traincheck::ctl {

struct StartCheckOptions {
  std::string server;     // for messages
  std::string run;        // given by hand; empty: made up, needs no check
  std::string check_set;  // empty: none
  bool require_server = false;
};

struct StartCheck {
  // Set: the training must not start, and the reason has been told.
  std::optional<int> exit_code;
  // False: it starts anyway, and the user has been warned once.
  bool server_answered = false;
  // Those asked for, without the built-in one where an older server has none.
  std::string check_set;
};

StartCheck CheckStart(Client* client, const StartCheckOptions& options);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_START_CHECK_H_
