#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ctl/client.h"
#include "ctl/commands/commands.h"
#include "ctl/doctor/agent_checks.h"
#include "ctl/doctor/finding.h"
#include "ctl/doctor/host_checks.h"
#include "ctl/doctor/settings_check.h"
#include "ctl/exit_codes.h"
#include "ctl/run/agent_library.h"

namespace traincheck::ctl {
namespace {

// Trainings start without a server, too. It is a failure all the same: their
// records would only pile up in spool folders.
Finding CheckServer(const std::string& address) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Make(address);
  const absl::StatusOr<v1::ServerStatus> status =
      client.ok() ? (*client)->GetStatus() : client.status();
  if (!status.ok()) {
    return {"server", Health::kFail,
            absl::StrCat(address, ": ", std::string(status.status().message())),
            "start traincheckd, or name it by --server or TRAINCHECK_SERVER; "
            "until then records are spooled"};
  }
  // The daemon answers and acknowledges nothing, so spool folders fill here as
  // well.
  if (!status->store_error().empty()) {
    return {"server", Health::kFail,
            absl::StrCat(address, " stores nothing: ", status->store_error()),
            "see the daemon's log and disk"};
  }
  return {"server", Health::kOk,
          absl::StrCat(address, ", version ", status->version()), ""};
}

// `tries`: also by a short training.
void CheckAgent(const std::string& python, bool tries,
                std::vector<Finding>* findings) {
  const absl::StatusOr<std::string> library = FindAgentLibrary();
  const absl::Status preload =
      library.ok() ? TryPreload(*library) : library.status();
  // Each of these findings needs those before it, so the first failure is the
  // last finding.
  if (!preload.ok()) {
    findings->push_back({"preload", Health::kFail,
                         std::string(preload.message()),
                         "install the agent's files beside traincheckctl"});
    return;
  }
  findings->push_back({"preload", Health::kOk, *library, ""});
  findings->push_back(CheckAgentFiles(*library));
  if (findings->back().health == Health::kFail) return;
  if (!tries) {
    findings->push_back({"python", Health::kWarn,
                         "not tried: the settings keep the agent off",
                         "mend the settings and ask again"});
    return;
  }
  for (Finding& finding : CheckPython(*library, python)) {
    findings->push_back(std::move(finding));
  }
}

int Doctor(const Context& context, const std::string& python) {
  // The settings first: where they keep the agent off, a trial would only show
  // that, and look like a broken installation.
  std::vector<Finding> findings = {CheckSettings(environ)};
  CheckAgent(python, findings[0].health == Health::kOk, &findings);
  // What follows does not depend on the agent's files and is looked at in any
  // case.
  findings.push_back(CheckSharedMemory());
  findings.push_back(CheckLimits());
  findings.push_back(CheckSpool());
  findings.push_back(CheckServer(context.server));
  std::cout << (context.json() ? FindingsJson : FindingsText)(findings)
            << std::flush;
  const bool failed = std::any_of(
      findings.begin(), findings.end(),
      [](const Finding& finding) { return finding.health == Health::kFail; });
  return failed ? kExitUnhealthy : kExitDone;
}

}  // namespace

void AddDoctor(CLI::App* doctor, const Context* context, Action* action) {
  auto python = std::make_shared<std::string>("python3");
  doctor->add_option("--python", *python, "The Python that trains")
      ->capture_default_str();
  doctor->callback(
      [=] { *action = [=] { return Doctor(*context, *python); }; });
}

}  // namespace traincheck::ctl
