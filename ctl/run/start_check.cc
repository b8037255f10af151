#include "ctl/run/start_check.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "invariants/sets/set_ref.h"

namespace traincheck::ctl {
namespace {

// For all silenced rules together.
constexpr std::chrono::seconds kUnknownWithin{2};

// InvalidArgument: the user asked for something that cannot be; other errors
// are the server's.
absl::Status CheckSetIsOneOf(const std::vector<v1::SetSummary>& sets,
                             const SetRef& set) {
  std::vector<std::string> names;
  for (const v1::SetSummary& summary : sets) {
    names.push_back(summary.name());
    if (summary.name() != set.name) continue;
    // A name without a version has 0, the newest.
    if (set.version <= summary.version()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the server has no version ", set.version, " of set \"",
                     set.name, "\"; its newest is ", summary.version()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the server has no set \"", set.name, "\"; it has ",
                   names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

bool Has(const std::vector<v1::SetSummary>& sets, const std::string& name) {
  return std::any_of(
      sets.begin(), sets.end(),
      [&name](const v1::SetSummary& set) { return set.name() == name; });
}

// Those of `asked` that the server has. Only the built-in one may be missing:
// most users did not name it.
absl::StatusOr<std::string> SetsOfServer(Client* client,
                                         const std::string& asked) {
  absl::StatusOr<RuleSelection> selection = ParseSelection(asked);
  if (!selection.ok()) return selection.status();
  const auto sets = client->ListSets();
  if (!sets.ok()) return sets.status();
  std::vector<SetRef> found;
  for (const SetRef& set : selection->sets) {
    // Said, because a run without its rules looks like one that broke none.
    if (set.name == kBuiltInSet && !Has(*sets, set.name)) {
      WriteToStderr(
          "traincheck: the server has no built-in rules, so the run is not "
          "checked against them: it is older than this traincheckctl, or its "
          "log says why it could not store them\n");
      continue;
    }
    absl::Status status = CheckSetIsOneOf(*sets, set);
    if (!status.ok()) return status;
    found.push_back(set);
  }
  // Only the built-in set was asked for, and the server has none.
  if (found.empty()) return "";
  selection->sets = std::move(found);
  return ToText(*selection);
}

absl::Status CheckRunIsNew(Client* client, const std::string& run) {
  absl::Status status = client->GetRun(run).status();
  if (absl::IsNotFound(status)) return absl::OkStatus();
  if (!status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("run \"", run, "\" exists already; --run needs a new id"));
}

// Somebody may think that it is silent, or does not know that it is gone. The
// training waits meanwhile, so a server that fails or is slow is asked no more:
// about the other rules nothing is said.
void WarnOfUnknown(Client* client, const std::vector<SilencedRule>& silenced) {
  const auto deadline = std::chrono::steady_clock::now() + kUnknownWithin;
  for (const SilencedRule& rule : silenced) {
    if (std::chrono::steady_clock::now() > deadline) return;
    const absl::Status status = client->GetInvariant(rule.rule).status();
    if (status.ok()) continue;
    if (!absl::IsNotFound(status)) return;
    WriteToStderr(absl::StrCat("traincheck: ", kRepositoryFile,
                               " silences rule ", rule.rule,
                               ", and no set on the server has it\n"));
  }
}

absl::StatusOr<StartCheck> Ask(Client* client,
                               const StartCheckOptions& options) {
  // Also when there is nothing to ask: does the server answer at all?
  absl::Status status = client->GetStatus().status();
  if (!status.ok()) return status;
  StartCheck check;
  check.server_answered = true;
  if (!options.check_set.empty()) {
    auto found = SetsOfServer(client, options.check_set);
    if (!found.ok()) return found.status();
    check.check_set = *std::move(found);
    WarnOfUnknown(client, options.silenced);
  }
  auto selection = client->GetSelection(options.experiment, check.check_set);
  if (!selection.ok()) return selection.status();
  check.selection = *std::move(selection);
  // Also one that was made up: a second training under it would become a part
  // of the first, and this costs one question.
  status = CheckRunIsNew(client, options.run);
  if (!status.ok()) return status;
  return check;
}

}  // namespace

// Three outcomes: the server agrees, the user's words are wrong and nothing
// starts, or the server cannot be asked and the training starts without its
// word.
StartCheck CheckStart(Client* client, const StartCheckOptions& options) {
  absl::StatusOr<StartCheck> check = Ask(client, options);
  if (check.ok()) return *std::move(check);
  const absl::Status& status = check.status();
  // Wrong words are the only reason to hold a training back that does not
  // require a server.
  if (absl::IsInvalidArgument(status)) {
    Complain(std::string(status.message()));
    return {kExitUsage, true, "", ""};
  }
  if (options.require_server) {
    return {ReportFailedCall(status, options.server), false, "", ""};
  }
  const std::string reason =
      absl::IsUnavailable(status)
          ? UnreachableMessage(status, options.server)
          : absl::StrCat("the server says: ", status.message());
  const std::string then =
      absl::IsPermissionDenied(status)
          ? ". The training starts; what is found is not shown here"
          : ". The training starts; its records are spooled until a server "
            "takes them";
  WriteToStderr(absl::StrCat("traincheck: ", reason, then, "\n"));
  // As it was asked for: it travels with the records, and the daemon that gets
  // them decides what the run is checked against.
  return {std::nullopt, false, options.check_set, options.check_set};
}

}  // namespace traincheck::ctl
