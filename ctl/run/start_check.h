// What `run` asks the server before it starts a training.
#ifndef TRAINCHECK_CTL_RUN_START_CHECK_H_
#define TRAINCHECK_CTL_RUN_START_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "ctl/client.h"
#include "ctl/run/repository_file.h"

namespace traincheck::ctl {

struct StartCheckOptions {
  std::string server;      // for messages
  std::string run;         // its id, given by hand or made up
  std::string check_set;   // empty: none
  std::string experiment;  // empty: the agent names it, or a reference run
  std::vector<SilencedRule> silenced;
  bool require_server = false;
};

struct StartCheck {
  // Set: the training must not start, and the user knows the reason.
  std::optional<int> exit_code;
  // False: it starts anyway, and the user has been warned once.
  bool server_answered = false;
  // Those asked for, without the built-in one where an older server has none.
  std::string check_set;
  // That, with what is deployed for the experiment and without what is disabled
  // on the server, as far as the server says it.
  std::string selection;
};

StartCheck CheckStart(Client* client, const StartCheckOptions& options);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_START_CHECK_H_
