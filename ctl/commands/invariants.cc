#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/invariant.h"
#include "ctl/render/set.h"
#include "ctl/render/set_diff.h"
#include "ctl/text/input_file.h"
#include "invariants/rules/invariant.h"
#include "invariants/sets/set_json.h"
#include "invariants/sets/set_merge.h"
#include "invariants/traincheck/invariant_file.h"

namespace traincheck::ctl {
namespace {

constexpr char kOwnFormat[] = "json";
constexpr char kTrainCheckFormat[] = "traincheck";

struct Options {
  std::string id;
  std::string set;
  std::string other;
  std::vector<std::string> sets;
  std::string file;
  std::string format = kOwnFormat;
  std::vector<std::string> experiments;
};

int List(const Context& context, const Options& options) {
  return Query<v1::SetDetail>(
      context, [&](Client& client) { return client.GetSet(options.set); },
      {InvariantsTable, [](const v1::SetDetail& set) {
         return PrettyJson(ArrayOf(set.invariants(), InvariantRowJson));
       }});
}

// By id alone: a rule may be in several sets, which the answer names.
int Show(const Context& context, const Options& options) {
  return Query<v1::Invariant>(
      context, [&](Client& client) { return client.GetInvariant(options.id); },
      {InvariantDetailText, [](const v1::Invariant& invariant) {
         return PrettyJson(InvariantDetailJson(invariant));
       }});
}

// A set of ours with the rules of one of TrainCheck's files.
absl::StatusOr<std::string> FromTrainCheck(const std::string& text,
                                           const Options& options) {
  absl::StatusOr<std::vector<Invariant>> rules =
      RulesFromFileUntrusted(text, options.experiments);
  if (!rules.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.file, ": ", rules.status().message()));
  }
  size_t nowhere = 0;
  for (const Invariant& rule : *rules) {
    // They stay in the set, but nobody should wait for a verdict on them.
    nowhere += rule.scope == Scope::kExperiment && rule.experiments.empty();
  }
  if (nowhere > 0) {
    WriteToStderr(absl::StrCat(
        nowhere, " of ", rules->size(), " rules name what is not torch's and ",
        "apply to no run: --experiment says whose they are\n"));
  }
  InvariantSet set;
  set.name = options.set;
  set.invariants = *std::move(rules);
  // In the form that sets are exchanged in: the daemon reads and checks it like
  // any other.
  return ToJson(set).dump();
}

// A file of TrainCheck's is translated here, so that the daemon knows one
// format only.
int Import(const Context& context, const Options& options) {
  absl::StatusOr<std::string> json = ReadInputFile(options.file);
  if (json.ok() && options.format == kTrainCheckFormat) {
    json = FromTrainCheck(*json, options);
  }
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

// What is to be written, and how many invariants it holds.
struct ExportedSet {
  std::string text;
  size_t invariants = 0;
};

absl::StatusOr<ExportedSet> ToTrainCheck(const v1::SetDetail& detail) {
  // TrainCheck's format is made of parsed rules; the daemon's JSON is checked
  // like a foreign one.
  const absl::StatusOr<InvariantSet> set = SetFromJsonUntrusted(detail.json());
  if (!set.ok()) return set.status();
  RuleFile file = FileOfRules(set->invariants);
  // An empty file would look like a successful export.
  if (file.lines == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("set \"", set->name, "\" has no rule of TrainCheck's, ",
                     "and those learned here have no form there"));
  }
  if (file.left_out > 0) {
    WriteToStderr(
        absl::StrCat("left out ", file.left_out,
                     " invariants that have no form in TrainCheck's files\n"));
  }
  return ExportedSet{std::move(file.text), file.lines};
}

// Without Query, which prints: what is exported goes to the file, and only
// words about it to stderr.
int Export(const Context& context, const Options& options) {
  auto client = Client::Make(context.server);
  if (!client.ok()) return ReportFailedCall(client.status(), context.server);
  const auto set = (*client)->GetSet(options.set);
  if (!set.ok()) return ReportFailedCall(set.status(), context.server);
  absl::StatusOr<ExportedSet> exported =
      ExportedSet{set->json(), set->summary().invariants()};
  if (options.format == kTrainCheckFormat) exported = ToTrainCheck(*set);
  if (!exported.ok()) {
    Complain(std::string(exported.status().message()));
    return kExitUsage;
  }
  // Nothing but the set on stdout, for a pipe.
  if (options.file == kStandardStream) {
    std::cout << exported->text << std::flush;
    return kExitDone;
  }
  // Opened only now: an error of the server leaves an existing file as it was.
  std::ofstream file(options.file, std::ios::binary | std::ios::trunc);
  file << exported->text;
  // Before the check: a full disk may show only as the last bytes are written.
  file.close();
  if (!file) {
    Complain(absl::StrCat("cannot write \"", options.file, "\""));
    return kExitUsage;
  }
  WriteToStderr(absl::StrCat("wrote ", exported->invariants, " invariants to ",
                             options.file, "\n"));
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

// Merged here and sent as a new set. For the daemon it is an import.
int Merge(const Context& context, const Options& options) {
  const auto ask = [&](Client& client) -> absl::StatusOr<v1::SetSummary> {
    std::vector<InvariantSet> sets;
    for (const std::string& name : options.sets) {
      const auto detail = client.GetSet(name);
      if (!detail.ok()) return detail.status();
      auto set = SetFromJsonUntrusted(detail->json());
      if (!set.ok()) return set.status();
      sets.push_back(*std::move(set));
    }
    InvariantSet merged = MergeSets(sets);
    merged.name = options.set;
    return client.ImportSet(options.set, ToJson(merged).dump());
  };
  using Summary = v1::SetSummary;
  return Query<Summary>(
      context, ask,
      {[](const Summary& set) { return SetsTable({set}); },
       [](const Summary& set) { return PrettyJson(SetRowJson(set)); }});
}

// Words that import and export share.
void AddTransfer(CLI::App* command, Options* options) {
  command->add_option("--set", options->set, "Set")->required();
  command->add_option("FILE", options->file, "File; -: the standard stream")
      ->required();
  command
      ->add_option("--format", options->format,
                   "Format of the file: json, or traincheck (JSON lines)")
      ->check(CLI::IsMember({kOwnFormat, kTrainCheckFormat}))
      ->capture_default_str();
}

}  // namespace

void AddInvariants(CLI::App* group, const Context* context, Action* action) {
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
      group->add_subcommand("import", "Makes a set from a file");
  AddTransfer(import_set, options.get());
  import_set
      ->add_option(
          "--experiment", options->experiments,
          "Experiment of the rules of a TrainCheck file that name more "
          "than torch: NAME[,NAME...]")
      ->delimiter(',');
  import_set->callback(
      [=] { *action = [=] { return Import(*context, *options); }; });

  CLI::App* export_set =
      group->add_subcommand("export", "Writes a set to a file");
  AddTransfer(export_set, options.get());
  export_set->callback(
      [=] { *action = [=] { return Export(*context, *options); }; });

  CLI::App* merge =
      group->add_subcommand("merge", "Makes one set of what several hold");
  merge->add_option("--set", options->set, "Set to make")->required();
  merge->add_option("SETS", options->sets, "Sets: NAME or NAME@VERSION")
      ->required();
  merge->callback([=] { *action = [=] { return Merge(*context, *options); }; });

  CLI::App* diff = group->add_subcommand("diff", "How two sets differ");
  diff->add_option("A", options->set, "Set: NAME or NAME@VERSION")->required();
  diff->add_option("B", options->other, "Set")->required();
  diff->callback([=] { *action = [=] { return Diff(*context, *options); }; });
}

}  // namespace traincheck::ctl
