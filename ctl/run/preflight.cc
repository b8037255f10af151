#include "ctl/run/preflight.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "invariants/sets/set_ref.h"

namespace traincheck::ctl {
namespace {

// InvalidArgument: the user asked for something that cannot be; other errors
// are the server's.
absl::Status CheckSetIsOneOf(const std::vector<v1::SetSummary>& sets,
                             const SetRef& set) {
  std::vector<std::string> names;
  for (const v1::SetSummary& summary : sets) {
    names.push_back(summary.name());
    if (summary.name() != set.name) continue;
    if (set.version <= summary.version()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the server has no version ", set.version, " of set \"",
                     set.name, "\"; its newest is ", summary.version()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the server has no set \"", set.name, "\"; it has ",
                   names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::Status CheckSetsExist(Client* client, const std::string& asked) {
  const absl::StatusOr<std::vector<SetRef>> refs = ParseSetRefs(asked);
  if (!refs.ok()) return refs.status();
  const auto sets = client->ListSets();
  if (!sets.ok()) return sets.status();
  for (const SetRef& set : *refs) {
    const absl::Status status = CheckSetIsOneOf(*sets, set);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckRunIsNew(Client* client, const std::string& run) {
  absl::Status status = client->GetRun(run).status();
  if (absl::IsNotFound(status)) return absl::OkStatus();
  if (!status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("run \"", run, "\" exists already; --run needs a new id"));
}

absl::Status Ask(Client* client, const PreflightOptions& options) {
  // Also when there is nothing to ask: does the server answer at all?
  absl::Status status = client->GetStatus().status();
  if (status.ok() && !options.check_set.empty()) {
    status = CheckSetsExist(client, options.check_set);
  }
  if (status.ok() && !options.run.empty()) {
    status = CheckRunIsNew(client, options.run);
  }
  return status;
}

}  // namespace

PreflightResult Preflight(Client* client, const PreflightOptions& options) {
  const absl::Status status = Ask(client, options);
  if (status.ok()) return {std::nullopt, true};
  if (absl::IsInvalidArgument(status)) {
    Complain(std::string(status.message()));
    return {kExitUsage, true};
  }
  if (options.require_server) {
    return {ReportFailedCall(status, options.server), false};
  }
  const std::string reason =
      absl::IsUnavailable(status)
          ? UnreachableMessage(status, options.server)
          : absl::StrCat("the server says: ", status.message());
  WriteToStderr(absl::StrCat("traincheck: ", reason,
                             ". The training starts; its records are spooled "
                             "until a server takes them\n"));
  return {std::nullopt, false};
}

}  // namespace traincheck::ctl
