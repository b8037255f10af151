#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/id_prefix.h"
#include "ctl/commands/query.h"
#include "ctl/render/feedback.h"
#include "ctl/text/since.h"
#include "ctl/text/who.h"

namespace traincheck::ctl {
namespace {

using Silences = std::vector<v1::Silence>;

std::string SilenceObject(const v1::Silence& silence) {
  return PrettyJson(SilenceJson(silence));
}

// An empty member asks for nothing; a violation must match all others.
struct AddOptions {
  std::string rule;
  std::string relation;
  std::string variable;
  std::string experiment;
  std::string until;
  std::string comment;
};

// The daemon lays silences over violations when it shows them and writes
// nothing into them, so one that is removed leaves no trace.
int Add(const Context& context, const AddOptions& options) {
  v1::Silence silence;
  silence.set_rule(options.rule);
  silence.set_relation(options.relation);
  silence.set_variable(options.variable);
  silence.set_experiment(options.experiment);
  silence.set_comment(options.comment);
  silence.set_by(UserAtHost());
  // Parsed here, where "3d" counts from this moment; the daemon gets a time.
  if (!options.until.empty()) {
    const auto until = ParseUntil(options.until, NowUnixNs());
    if (!until.ok()) {
      Complain(absl::StrCat("--until: ", until.status().message()));
      return kExitUsage;
    }
    silence.set_until_unix_ns(*until);
  }
  return Query<v1::Silence>(
      context, [&](Client& client) { return client.AddSilence(silence); },
      {SilenceAddedText, SilenceObject});
}

int List(const Context& context) {
  return Query<Silences>(context,
                         [](Client& client) { return client.ListSilences(); },
                         {SilencesTable, [](const Silences& silences) {
                            return PrettyJson(ArrayOf(silences, SilenceJson));
                          }});
}

// For the first letters of an id the daemon knows no silence, and the list
// gives the whole id (id_prefix.h).
int Remove(const Context& context, const std::string& id) {
  const auto ask = [&](Client& client) {
    return GetByPrefix<v1::Silence>(
        id,
        [&](const std::string& whole) { return client.RemoveSilence(whole); },
        [&] { return client.ListSilences(); });
  };
  return Query<v1::Silence>(
      context, ask,
      {[](const v1::Silence& silence) {
         return absl::StrCat("silence ", silence.id(),
                             " is removed: what it covered alerts again\n");
       },
       SilenceObject});
}

void AddAdd(CLI::App* group, const Context* context, Action* action) {
  auto options = std::make_shared<AddOptions>();
  CLI::App* add = group->add_subcommand(
      "add", "Do not alert on violations that match all of these options");
  add->add_option("--rule", options->rule, "Id of a rule");
  add->add_option("--relation", options->relation,
                  "Rules of this relation (RELATION of violations list)");
  add->add_option("--variable", options->variable,
                  "Violations whose variables all match this shell pattern: "
                  "'head.*'");
  add->add_option("--experiment", options->experiment,
                  "Runs of this experiment");
  add->add_option("--until", options->until,
                  "When it ends: 12h, 3d, 2026-12-01 (UTC); default: when it "
                  "is removed");
  // Required: a silence is read by people who did not make it.
  add->add_option("--comment", options->comment,
                  "Reason, for people who read this later")
      ->required();
  add->footer(
      "Violations that it covers are still found and recorded; violations "
      "list --all shows them.\n"
      "Example:\n"
      "  traincheckctl silences add --rule 51df97ea403bb4bf --until 7d "
      "--comment 'mended in #71'");
  add->callback([=] { *action = [=] { return Add(*context, *options); }; });
}

}  // namespace

void AddSilences(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);
  AddAdd(group, context, action);

  group->add_subcommand("list", "All silences, those that have ended too")
      ->callback([=] { *action = [=] { return List(*context); }; });

  auto id = std::make_shared<std::string>();
  CLI::App* remove = group->add_subcommand("remove", "End a silence");
  remove->add_option("ID", *id, "Silence; the first letters of its id do")
      ->required();
  remove->callback([=] { *action = [=] { return Remove(*context, *id); }; });
}

}  // namespace traincheck::ctl
