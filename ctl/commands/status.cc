#include "ctl/render/status.h"

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"

namespace traincheck::ctl {
namespace {

int Status(const Context& context) {
  return Query<v1::ServerStatus>(
      context, [](Client& client) { return client.GetStatus(); },
      {StatusText, [](const v1::ServerStatus& status) {
         return PrettyJson(StatusJson(status));
       }});
}

}  // namespace

void AddStatus(CLI::App* app, const Context* context, Action* action) {
  CLI::App* status = app->add_subcommand(
      "status", "The server, runs in progress, and why a rank is missing");
  status->callback([=] { *action = [=] { return Status(*context); }; });
}

}  // namespace traincheck::ctl
