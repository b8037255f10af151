#include <memory>
#include <set>

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/violation.h"

namespace traincheck::ctl {
namespace {

int List(const Context& context, const std::string& run) {
  using Violations = std::vector<v1::Violation>;
  return Query<Violations>(
      context, [&](Client& client) { return client.ListViolations(run); },
      {ViolationsTable, [](const Violations& violations) {
         return PrettyJson(ArrayOf(violations, ViolationRowJson));
       }});
}

int Show(const Context& context, const std::string& id) {
  return Query<v1::Violation>(
      context, [&](Client& client) { return client.GetViolation(id); },
      {ViolationDetailText, [](const v1::Violation& violation) {
         return PrettyJson(ViolationDetailJson(violation));
       }});
}

// JSON: a line for each state of a violation. People see each violation once:
// one that goes on for a thousand steps must not scroll the others away.
int Watch(const Context& context, const std::string& run) {
  auto client = Client::Make(context.server);
  if (!client.ok()) return ReportFailedCall(client.status(), context.server);
  ViolationStream stream(client->get(), run);
  std::set<std::string> seen;
  const absl::Status status = stream.Read([&](const v1::Violation& violation) {
    if (context.json()) {
      std::cout << JsonLine(ViolationRowJson(violation)) << std::flush;
    } else if (seen.insert(violation.id()).second) {
      std::cout << violation.id() << " " << violation.run() << " "
                << ViolationHeadline(violation) << "\n"
                << std::flush;
    }
  });
  if (!status.ok()) return ReportFailedCall(status, context.server);
  return kExitDone;
}

}  // namespace

void AddViolations(CLI::App* app, const Context* context, Action* action) {
  CLI::App* group = app->add_subcommand("violations", "Rules that were broken");
  group->require_subcommand(1);
  auto run = std::make_shared<std::string>();
  auto id = std::make_shared<std::string>();

  CLI::App* list = group->add_subcommand("list", "Violations");
  list->add_option("--run", *run, "Of this run only");
  list->callback([=] { *action = [=] { return List(*context, *run); }; });

  CLI::App* show =
      group->add_subcommand("show", "One violation with its evidence");
  show->add_option("ID", *id, "Violation")->required();
  show->callback([=] { *action = [=] { return Show(*context, *id); }; });

  CLI::App* watch = group->add_subcommand(
      "watch",
      "Violations as they come; with --run until the run is fully checked");
  watch->add_option("--run", *run, "Of this run only");
  watch->callback([=] { *action = [=] { return Watch(*context, *run); }; });
}

}  // namespace traincheck::ctl
