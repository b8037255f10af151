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

void AddStatus(CLI::App* status, const Context* context, Action* action) {
  status->callback([=] { *action = [=] { return Status(*context); }; });
}

}  // namespace traincheck::ctl
