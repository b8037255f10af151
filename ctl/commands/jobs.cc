#include <memory>

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/job.h"

namespace traincheck::ctl {
namespace {

// The call in which show and cancel differ.
using Ask = std::function<absl::StatusOr<v1::Job>(Client&, const std::string&)>;

// Jobs outlive the client that started them (infer --detach, Ctrl-C).
int List(const Context& context) {
  using Jobs = std::vector<v1::Job>;
  return Query<Jobs>(context, [](Client& client) { return client.ListJobs(); },
                     {JobsTable, [](const Jobs& jobs) {
                        return PrettyJson(ArrayOf(jobs, JobRowJson));
                      }});
}

// A command about one job that answers with the job.
void AddOne(CLI::App* command, const Ask& ask, const Context* context,
            Action* action) {
  auto id = std::make_shared<std::string>();
  command->add_option("ID", *id, "Job")->required();
  command->callback([=] {
    *action = [=] {
      return Query<v1::Job>(
          *context, [&](Client& client) { return ask(client, *id); },
          {JobText,
           [](const v1::Job& job) { return PrettyJson(JobDetailJson(job)); }});
    };
  });
}

}  // namespace

void AddJobs(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);
  CLI::App* list =
      group->add_subcommand("list", "All that wait, run or ended lately");
  list->callback([=] { *action = [=] { return List(*context); }; });
  AddOne(
      group->add_subcommand("show", "One job"),
      [](Client& client, const std::string& id) { return client.GetJob(id); },
      context, action);
  AddOne(
      group->add_subcommand("cancel", "Ends a job that waits or runs"),
      [](Client& client, const std::string& id) {
        return client.CancelJob(id);
      },
      context, action);
}

}  // namespace traincheck::ctl
