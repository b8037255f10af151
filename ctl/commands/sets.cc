#include <memory>

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/plan.h"
#include "ctl/render/set.h"

namespace traincheck::ctl {
namespace {

int List(const Context& context) {
  using Sets = std::vector<v1::SetSummary>;
  return Query<Sets>(context, [](Client& client) { return client.ListSets(); },
                     {SetsTable, [](const Sets& sets) {
                        return PrettyJson(ArrayOf(sets, SetRowJson));
                      }});
}

int Show(const Context& context, const std::string& name) {
  return Query<v1::SetDetail>(
      context, [&](Client& client) { return client.GetSet(name); },
      {SetDetailText, [](const v1::SetDetail& set) {
         return PrettyJson(SetDetailJson(set));
       }});
}

int Plan(const Context& context, const std::string& name) {
  return Query<v1::SetPlan>(
      context, [&](Client& client) { return client.GetSetPlan(name); },
      {SetPlanText, SetPlanText});
}

}  // namespace

void AddSets(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);

  CLI::App* list = group->add_subcommand("list", "All sets");
  list->callback([=] { *action = [=] { return List(*context); }; });

  CLI::App* show = group->add_subcommand("show", "One set with its invariants");
  auto name = std::make_shared<std::string>();
  show->add_option("NAME", *name, "Set: NAME or NAME@VERSION")->required();
  show->callback([=] { *action = [=] { return Show(*context, *name); }; });

  CLI::App* plan = group->add_subcommand(
      "plan", "The capture plan under which all its rules can be decided");
  auto of = std::make_shared<std::string>();
  plan->add_option("NAME", *of, "Set")->required();
  plan->callback([=] { *action = [=] { return Plan(*context, *of); }; });
}

}  // namespace traincheck::ctl
