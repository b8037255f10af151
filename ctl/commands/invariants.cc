#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/invariant.h"
#include "ctl/render/set.h"
#include "ctl/render/set_diff.h"
#include "ctl/text/input_file.h"

namespace traincheck::ctl {
namespace {

struct Options {
  std::string id;
  std::string set;
  std::string other;
  std::string file;
};

int List(const Context& context, const Options& options) {
  return Query<v1::SetDetail>(
      context, [&](Client& client) { return client.GetSet(options.set); },
      {InvariantsTable, [](const v1::SetDetail& set) {
         return PrettyJson(ArrayOf(set.invariants(), InvariantRowJson));
       }});
}

int Show(const Context& context, const Options& options) {
  return Query<v1::Invariant>(
      context, [&](Client& client) { return client.GetInvariant(options.id); },
      {InvariantDetailText, [](const v1::Invariant& invariant) {
         return PrettyJson(InvariantDetailJson(invariant));
       }});
}

int Import(const Context& context, const Options& options) {
  const absl::StatusOr<std::string> json = ReadInputFile(options.file);
  if (!json.ok()) {
    Complain(std::string(json.status().message()));
    return kExitUsage;
  }
  using Summary = v1::SetSummary;
  return Query<Summary>(
      context,
      [&](Client& client) { return client.ImportSet(options.set, *json); },
      {[](const Summary& set) { return SetsTable({set}); },
       [](const Summary& set) { return PrettyJson(SetRowJson(set)); }});
}

int Export(const Context& context, const Options& options) {
  auto client = Client::Make(context.server);
  if (!client.ok()) return ReportFailedCall(client.status(), context.server);
  const auto set = (*client)->GetSet(options.set);
  if (!set.ok()) return ReportFailedCall(set.status(), context.server);
  if (options.file == kStandardStream) {
    std::cout << set->json() << std::flush;
    return kExitDone;
  }
  std::ofstream file(options.file, std::ios::binary | std::ios::trunc);
  file << set->json();
  file.close();
  if (!file) {
    Complain(absl::StrCat("cannot write \"", options.file, "\""));
    return kExitUsage;
  }
  WriteToStderr(absl::StrCat("wrote ", set->summary().invariants(),
                             " invariants to ", options.file, "\n"));
  return kExitDone;
}

int Diff(const Context& context, const Options& options) {
  const auto ask = [&](Client& client) -> absl::StatusOr<SetDiff> {
    const auto a = client.GetSet(options.set);
    if (!a.ok()) return a.status();
    const auto b = client.GetSet(options.other);
    if (!b.ok()) return b.status();
    return DiffSets(*a, *b);
  };
  return Query<SetDiff>(context, ask, {SetDiffText, [](const SetDiff& diff) {
                                         return PrettyJson(SetDiffJson(diff));
                                       }});
}

void AddTransfer(CLI::App* command, Options* options) {
  command->add_option("--set", options->set, "Set")->required();
  command
      ->add_option("FILE", options->file, "JSON file; -: the standard stream")
      ->required();
}

}  // namespace

void AddInvariants(CLI::App* app, const Context* context, Action* action) {
  CLI::App* group = app->add_subcommand("invariants", "Rules of a set");
  group->require_subcommand(1);
  auto options = std::make_shared<Options>();

  CLI::App* list = group->add_subcommand("list", "The invariants of a set");
  list->add_option("SET", options->set, "Set")->required();
  list->callback([=] { *action = [=] { return List(*context, *options); }; });

  CLI::App* show = group->add_subcommand("show", "One invariant");
  show->add_option("ID", options->id, "Invariant")->required();
  show->callback([=] { *action = [=] { return Show(*context, *options); }; });

  // "import" alone is a word of C++20.
  CLI::App* import_set =
      group->add_subcommand("import", "Makes a set from a JSON file");
  AddTransfer(import_set, options.get());
  import_set->callback(
      [=] { *action = [=] { return Import(*context, *options); }; });

  CLI::App* export_set =
      group->add_subcommand("export", "Writes a set to a JSON file");
  AddTransfer(export_set, options.get());
  export_set->callback(
      [=] { *action = [=] { return Export(*context, *options); }; });

  CLI::App* diff = group->add_subcommand("diff", "How two sets differ");
  diff->add_option("A", options->set, "Set")->required();
  diff->add_option("B", options->other, "Set")->required();
  diff->callback([=] { *action = [=] { return Diff(*context, *options); }; });
}

}  // namespace traincheck::ctl
