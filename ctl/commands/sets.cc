#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/feedback.h"
#include "ctl/render/plan.h"
#include "ctl/render/rule_policy.h"
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

// JSON in both formats: a plan is made to be put into a file, for run --plan.
int Plan(const Context& context, const std::string& name) {
  return Query<v1::SetPlan>(
      context, [&](Client& client) { return client.GetSetPlan(name); },
      {SetPlanText, SetPlanText});
}

// All versions of the set, or the one behind "@".
int Delete(const Context& context, const std::string& set) {
  return Query<v1::DeleteSetReply>(
      context, [&](Client& client) { return client.DeleteSet(set); },
      {DeletedSetText, [](const v1::DeleteSetReply& deleted) {
         return PrettyJson(DeletedSetJson(deleted));
       }});
}

// The rule is found in whatever sets it is. Checks in progress keep it.
int Disable(const Context& context, const std::string& rule,
            const std::string& reason) {
  return Query<v1::DisabledRule>(
      context, [&](Client& client) { return client.DisableRule(rule, reason); },
      {[](const v1::DisabledRule& disabled) {
         return absl::StrCat("rule ", disabled.rule(),
                             " is disabled: no run that begins from now on is "
                             "checked against it\n");
       },
       [](const v1::DisabledRule& disabled) {
         return PrettyJson(DisabledRuleJson(disabled));
       }});
}

// Takes back what disable did; the answer has the reason that was given then.
int Enable(const Context& context, const std::string& rule) {
  return Query<v1::DisabledRule>(
      context, [&](Client& client) { return client.EnableRule(rule); },
      {[](const v1::DisabledRule& enabled) {
         return absl::StrCat("rule ", enabled.rule(), " is checked again\n");
       },
       [](const v1::DisabledRule& enabled) {
         return PrettyJson(DisabledRuleJson(enabled));
       }});
}

int ListDisabled(const Context& context) {
  using Rules = std::vector<v1::DisabledRule>;
  return Query<Rules>(context,
                      [](Client& client) { return client.ListDisabledRules(); },
                      {DisabledRulesTable, [](const Rules& rules) {
                         return PrettyJson(ArrayOf(rules, DisabledRuleJson));
                       }});
}

// Only reads: the answer has the commands that would disable rules, for people
// to decide.
int Review(const Context& context, const std::string& set) {
  return Query<v1::SetReview>(
      context, [&](Client& client) { return client.ReviewSet(set); },
      {SetReviewText, [](const v1::SetReview& review) {
         return PrettyJson(SetReviewJson(review));
       }});
}

// Replaces what was deployed for the experiment; an empty list withdraws it.
int Deploy(const Context& context, const std::string& experiment,
           const std::vector<std::string>& sets) {
  return Query<v1::Deployment>(
      context,
      [&](Client& client) { return client.DeploySets(experiment, sets); },
      {DeploymentText, [](const v1::Deployment& deployment) {
         return PrettyJson(DeploymentJson(deployment));
       }});
}

int ListDeployed(const Context& context) {
  using Deployments = std::vector<v1::Deployment>;
  return Query<Deployments>(
      context, [](Client& client) { return client.ListDeployments(); },
      {DeploymentsTable, [](const Deployments& deployments) {
         return PrettyJson(ArrayOf(deployments, DeploymentJson));
       }});
}

// Commands share the values of options that they have in common: only one of
// them is ever parsed.
void AddDeployment(CLI::App* group, const Context* context, Action* action) {
  auto sets = std::make_shared<std::vector<std::string>>();
  auto experiment = std::make_shared<std::string>();
  CLI::App* deploy = group->add_subcommand(
      "deploy", "Check runs of an experiment against sets, asked for or not");
  deploy->add_option("SET", *sets, "NAME or NAME@VERSION, or several: A,B")
      ->required()
      ->delimiter(',');
  deploy->add_option("--experiment", *experiment, "The experiment of the runs")
      ->required();
  deploy->footer(
      "Replaces what was deployed for the experiment. Runs that have begun "
      "stay "
      "as they are.\n"
      "Example:\n"
      "  traincheckctl sets deploy resnet --experiment resnet");
  deploy->callback(
      [=] { *action = [=] { return Deploy(*context, *experiment, *sets); }; });

  CLI::App* withdraw = group->add_subcommand(
      "withdraw", "Deploy nothing for an experiment any more");
  withdraw
      ->add_option("--experiment", *experiment, "The experiment of the runs")
      ->required();
  withdraw->callback(
      [=] { *action = [=] { return Deploy(*context, *experiment, {}); }; });

  group->add_subcommand("deployed", "What is deployed, by experiment")
      ->callback([=] { *action = [=] { return ListDeployed(*context); }; });
}

// Commands about single rules rather than sets.
void AddDisabling(CLI::App* group, const Context* context, Action* action) {
  auto rule = std::make_shared<std::string>();
  auto reason = std::make_shared<std::string>();
  CLI::App* disable = group->add_subcommand(
      "disable", "Check no run against a rule, in whatever set it is");
  disable->add_option("RULE", *rule, "Id of a rule")->required();
  disable->add_option("--reason", *reason, "Why, for those who come later")
      ->required();
  disable->callback(
      [=] { *action = [=] { return Disable(*context, *rule, *reason); }; });

  CLI::App* enable =
      group->add_subcommand("enable", "Check runs against a rule again");
  enable->add_option("RULE", *rule, "Id of a rule that is disabled")
      ->required();
  enable->callback([=] { *action = [=] { return Enable(*context, *rule); }; });

  group->add_subcommand("disabled", "Rules that are disabled, and why")
      ->callback([=] { *action = [=] { return ListDisabled(*context); }; });

  auto set = std::make_shared<std::string>();
  CLI::App* review = group->add_subcommand(
      "review",
      "Rules that false alarms or healthy runs speak against, and how to "
      "disable them; changes nothing");
  review->add_option("SET", *set,
                     "NAME or NAME@VERSION; default: the rules of all sets");
  review->callback([=] { *action = [=] { return Review(*context, *set); }; });
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
  // Values live as long as the parser and the action that refers to them.
  auto of = std::make_shared<std::string>();
  plan->add_option("NAME", *of, "Set")->required();
  plan->callback([=] { *action = [=] { return Plan(*context, *of); }; });

  CLI::App* remove =
      group->add_subcommand("delete", "Delete a set, or one version of it");
  auto set = std::make_shared<std::string>();
  remove->add_option("SET", *set, "NAME or NAME@VERSION")->required();
  remove->callback([=] { *action = [=] { return Delete(*context, *set); }; });

  AddDisabling(group, context, action);
  AddDeployment(group, context, action);
}

}  // namespace traincheck::ctl
