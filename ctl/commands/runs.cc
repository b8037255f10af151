#include <memory>
#include <string>
#include <vector>

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

struct Deleted {
  std::string id;
  v1::DeleteRunReply reply;
};

Json DeletedJson(const Deleted& deleted) {
  Json json;
  json["id"] = deleted.id;
  json["records"] = deleted.reply.records();
  json["bytes"] = deleted.reply.bytes();
  return json;
}

// Deletes what can be deleted; the code is that of the last failure.
int Delete(const Context& context, const std::vector<std::string>& ids) {
  auto client = Client::Make(context.server);
  if (!client.ok()) return ReportFailedCall(client.status(), context.server);
  int code = kExitDone;
  std::vector<Deleted> all;
  for (const std::string& id : ids) {
    const auto reply = (*client)->DeleteRun(id);
    if (reply.ok()) {
      all.push_back({id, *reply});
    } else {
      code = ReportFailedCall(reply.status(), context.server);
    }
  }
  if (context.json()) {
    std::cout << PrettyJson(ArrayOf(all, DeletedJson)) << std::flush;
    return code;
  }
  for (const Deleted& deleted : all) {
    std::cout << "deleted run " << deleted.id << ": " << deleted.reply.records()
              << " records, " << deleted.reply.bytes() << " bytes\n";
  }
  std::cout << std::flush;
  return code;
}

int Keep(const Context& context, const std::string& id, bool keep) {
  return Query<v1::Run>(
      context, [&](Client& client) { return client.KeepRun(id, keep); },
      {[](const v1::Run& run) {
         return "run " + run.id() +
                (run.kept() ? " is kept\n" : " is left to retention\n");
       },
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

  CLI::App* remove = group->add_subcommand(
      "delete", "Delete ended runs with their records and violations");
  auto ids = std::make_shared<std::vector<std::string>>();
  remove->add_option("ID", *ids, "Runs")->required();
  remove->callback([=] { *action = [=] { return Delete(*context, *ids); }; });

  CLI::App* keep = group->add_subcommand(
      "keep", "Take a run out of retention, or put it back");
  auto kept = std::make_shared<std::string>();
  auto off = std::make_shared<bool>(false);
  keep->add_option("ID", *kept, "Run")->required();
  keep->add_flag("--off", *off, "Leave it to retention again");
  keep->callback(
      [=] { *action = [=] { return Keep(*context, *kept, !*off); }; });
}

}  // namespace traincheck::ctl
