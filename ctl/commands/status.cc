#include "ctl/render/status.h"

#include <utility>

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/feedback.h"

namespace traincheck::ctl {
namespace {

struct Shown {
  v1::ServerStatus server;
  v1::AlertCalls calls;
};

// Two services answer, and people see one status. An older server, which starts
// no commands, gives an empty second answer (Client::GetAlertCalls).
absl::StatusOr<Shown> Ask(Client& client) {
  auto server = client.GetStatus();
  if (!server.ok()) return server.status();
  auto calls = client.GetAlertCalls();
  if (!calls.ok()) return calls.status();
  return Shown{*std::move(server), *std::move(calls)};
}

int Status(const Context& context) {
  return Query<Shown>(
      context, Ask,
      {[](const Shown& shown) {
         return StatusText(shown.server) + AlertCallsText(shown.calls);
       },
       [](const Shown& shown) {
         Json json = StatusJson(shown.server);
         json["server"]["on_alert"] = AlertCallsJson(shown.calls);
         return PrettyJson(json);
       }});
}

}  // namespace

void AddStatus(CLI::App* status, const Context* context, Action* action) {
  status->callback([=] { *action = [=] { return Status(*context); }; });
}

}  // namespace traincheck::ctl
