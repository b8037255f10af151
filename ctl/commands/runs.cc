#include <memory>

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/run.h"

namespace traincheck::ctl {
namespace {

int List(const Context& context) {
  using Runs = std::vector<v1::Run>;
  return Query<Runs>(context, [](Client& client) { return client.ListRuns(); },
                     {RunsTable, [](const Runs& runs) {
                        return PrettyJson(ArrayOf(runs, RunRowJson));
                      }});
}

int Show(const Context& context, const std::string& id) {
  return Query<v1::Run>(
      context, [&](Client& client) { return client.GetRun(id); },
      {RunDetailText,
       [](const v1::Run& run) { return PrettyJson(RunDetailJson(run)); }});
}

}  // namespace

void AddRuns(CLI::App* app, const Context* context, Action* action) {
  CLI::App* group = app->add_subcommand("runs", "Recorded runs");
  group->require_subcommand(1);

  CLI::App* list = group->add_subcommand("list", "All runs");
  list->callback([=] { *action = [=] { return List(*context); }; });

  CLI::App* show =
      group->add_subcommand("show", "One run with its processes and verdict");
  auto id = std::make_shared<std::string>();
  show->add_option("ID", *id, "Run")->required();
  show->callback([=] { *action = [=] { return Show(*context, *id); }; });
}

}  // namespace traincheck::ctl
