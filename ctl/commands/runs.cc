#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/id_prefix.h"
#include "ctl/commands/list_flags.h"
#include "ctl/commands/query.h"
#include "ctl/render/names.h"
#include "ctl/render/plan.h"
#include "ctl/render/run.h"
#include "ctl/report.h"
#include "ctl/text/input_file.h"
#include "ctl/text/since.h"

namespace traincheck::ctl {
namespace {

using Runs = std::vector<v1::Run>;

// What `runs list` can be narrowed and ordered by, in the words of its table.
ListShape<v1::Run> Shape() {
  ListShape<v1::Run> shape;
  shape.experiment = [](const v1::Run& run) { return run.experiment(); };
  shape.status = [](const v1::Run& run) { return StatusName(run.status()); };
  shape.statuses = {"running", "ended", "lost"};
  shape.time_is = "started";
  shape.time = [](const v1::Run& run) { return run.started_unix_ns(); };
  shape.orders = {{"id", [](const v1::Run& a,
                            const v1::Run& b) { return a.id() < b.id(); }},
                  {"started",
                   [](const v1::Run& a, const v1::Run& b) {
                     return a.started_unix_ns() < b.started_unix_ns();
                   }},
                  {"records", [](const v1::Run& a, const v1::Run& b) {
                     return a.records() < b.records();
                   }}};
  return shape;
}

// Runs stay for ever, as descriptions at least.
constexpr uint32_t kDefaultPage = 200;

struct ListOptions {
  ListFlags flags;
  uint32_t newest = 0;  // 0: not given
  std::string before;
  bool all = false;
};

// How many are asked for; 0: all. What is chosen or ordered here is chosen from
// all, unless a page is asked for.
uint32_t PageOf(const ListOptions& options) {
  const ListFlags& flags = options.flags;
  const bool chosen_here = !flags.status.empty() || !flags.sort.empty() ||
                           flags.limit > 0 || !flags.since.empty();
  if (options.all || (options.newest == 0 && chosen_here)) return 0;
  return options.newest > 0 ? options.newest : kDefaultPage;
}

// What the server can select; Select does all of it.
v1::ListRunsRequest RequestFor(const ListOptions& options) {
  v1::ListRunsRequest request;
  request.set_experiment(options.flags.experiment);
  if (!options.flags.since.empty()) {
    request.set_started_since_unix_ns(
        // The option's own check has parsed the text before.
        ParseSince(options.flags.since, NowUnixNs()).value_or(0));
  }
  request.set_newest(PageOf(options));
  request.set_before(options.before);
  return request;
}

int List(const Context& context, const ListOptions& options) {
  const auto ask = [&](Client& client) -> absl::StatusOr<Runs> {
    auto page = client.ListRuns(RequestFor(options));
    if (!page.ok()) return page;
    const uint32_t size = PageOf(options);
    // A full page may be all there is; one more look shows it. The oldest comes
    // first.
    if (size > 0 && page->size() == size) {
      Complain(absl::StrCat("older runs: --newest ", size, " --before ",
                            page->front().id(), ", or --all"));
    }
    return Select(*std::move(page), Shape(), options.flags);
  };
  return Query<Runs>(context, ask,
                     {RunsTable, [](const Runs& runs) {
                        return PrettyJson(ArrayOf(runs, RunRowJson));
                      }});
}

// The list is asked for only if no run has exactly this id.
int Show(const Context& context, const std::string& id) {
  return Query<v1::Run>(
      context,
      [&](Client& client) {
        return GetByPrefix<v1::Run>(
            id, [&](const std::string& whole) { return client.GetRun(whole); },
            [&] { return client.ListRunsByPrefix(id); });
      },
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
  // Without Query, which makes one call: each run is deleted by its own, and
  // one that fails does not keep the others.
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

// Retention passes a kept run over, however old it is.
int Keep(const Context& context, const std::string& id, bool keep) {
  return Query<v1::Run>(
      context, [&](Client& client) { return client.KeepRun(id, keep); },
      {[](const v1::Run& run) {
         return "run " + run.id() +
                (run.kept() ? " is kept\n" : " is left to retention\n");
       },
       [](const v1::Run& run) { return PrettyJson(RunDetailJson(run)); }});
}

// Without a file the plan of the run is shown. With one it is sent, and each
// rank takes it over when it comes to the step from which it holds.
int Plan(const Context& context, const std::string& id,
         const std::string& file) {
  std::string json;
  if (!file.empty()) {
    absl::StatusOr<std::string> text = ReadInputFile(file);
    if (!text.ok()) {
      Complain(std::string(text.status().message()));
      return kExitUsage;
    }
    json = *std::move(text);
  }
  return Query<v1::RunPlan>(context,
                            [&](Client& client) {
                              return file.empty()
                                         ? client.GetRunPlan(id)
                                         : client.ChangeRunPlan(id, json);
                            },
                            {RunPlanText, [](const v1::RunPlan& plan) {
                               return PrettyJson(RunPlanJson(plan));
                             }});
}

void AddPlan(CLI::App* group, const Context* context, Action* action) {
  CLI::App* plan = group->add_subcommand(
      "plan", "What the agents of a run record, or another plan for them");
  auto id = std::make_shared<std::string>();
  auto file = std::make_shared<std::string>();
  plan->add_option("ID", *id, "Run")->required();
  plan->add_option("--file", *file,
                   "Send this plan (docs/capture-plan.md); - is stdin");
  plan->callback([=] { *action = [=] { return Plan(*context, *id, *file); }; });
}

}  // namespace

void AddRuns(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);

  CLI::App* list = group->add_subcommand(
      "list", absl::StrCat("Runs, newest last; without an option the newest ",
                           kDefaultPage));
  auto options = std::make_shared<ListOptions>();
  AddListFlags(list, Shape(), &options->flags);
  CLI::Option* newest =
      list->add_option("--newest", options->newest,
                       "Only so many, those that started last")
          ->check(CLI::PositiveNumber);
  list->add_flag("--all", options->all, "All of them")->excludes(newest);
  list->add_option("--before", options->before,
                   "Only runs that started before this one");
  list->footer(
      "Examples:\n"
      "  traincheckctl runs list --since 1d --sort records --reverse\n"
      "  traincheckctl runs list --newest 20");
  list->callback([=] { *action = [=] { return List(*context, *options); }; });

  CLI::App* show =
      group->add_subcommand("show", "One run with its processes and verdict");
  auto id = std::make_shared<std::string>();
  show->add_option("ID", *id, "Run; the first letters of its id do")
      ->required();
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

  AddPlan(group, context, action);
}

}  // namespace traincheck::ctl
