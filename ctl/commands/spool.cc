#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/exit_codes.h"
#include "ctl/render/json.h"
#include "ctl/report.h"
#include "ctl/run/relay_program.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

constexpr const char* kKeys[] = {"file",    "pid",    "host",  "run",
                                 "batches", "result", "reason"};

// What the relay printed, an object a line; discarded if it is none.
Json ParseLines(const std::string& text) {
  Json files = Json::array();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) return Json(Json::value_t::discarded);
    Json file;
    for (const char* key : kKeys) {
      // All keys are there in JSON, also those that a relay does not know of a
      // file.
      file[key] = parsed.contains(key) ? parsed[key] : Json();
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::string Cell(const Json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string SpoolTable(const Json& files) {
  Table table({{"FILE"},
               {"PID", Align::kRight},
               {"HOST"},
               {"RUN"},
               {"BATCHES", Align::kRight},
               {"RESULT"},
               {"REASON"}});
  for (const Json& file : files) {
    std::vector<std::string> cells;
    for (const char* key : kKeys) cells.push_back(Cell(file[key]));
    table.AddRow(std::move(cells));
  }
  return table.Render(StdoutColumns());
}

// `act`: --send-spool or --list-spool. `folder` "": wherever relays spool.
int Ask(const Context& context, const std::string& act,
        const std::string& folder) {
  // Only the relay reads spool files. This program starts one and shows what it
  // prints.
  const absl::StatusOr<std::string> relay = FindRelayProgram();
  // Asked only without a folder: a wrong setting must not keep anybody from
  // delivering a folder that is named.
  const absl::StatusOr<std::string> setting =
      folder.empty() ? SpoolSetting() : std::string();
  for (const absl::Status& status : {relay.status(), setting.status()}) {
    if (status.ok()) continue;
    Complain(std::string(status.message()));
    return kExitUsage;
  }
  std::vector<std::string> command = {*relay, act};
  if (!folder.empty()) command.push_back(folder);
  std::vector<std::string> variables = {
      // The relay would take the server of its environment; an option of this
      // program may name another one.
      absl::StrCat("TRAINCHECK_SERVER=", context.server)};
  if (!setting->empty()) {
    variables.push_back(absl::StrCat("TRAINCHECK_SPOOL_DIR=", *setting));
  }
  // The relay connects by itself; this program only names the server.
  const absl::StatusOr<ProgramResult> sent =
      RunProgram(std::move(command), variables);
  if (!sent.ok()) {
    Complain(std::string(sent.status().message()));
    return kExitUsage;
  }
  const Json files = ParseLines(sent->out);
  if (files.is_discarded()) {
    Complain(absl::StrCat(*relay, " is of another version than this program"));
    return kExitUsage;
  }
  std::cout << (context.json() ? PrettyJson(files) : SpoolTable(files));
  return sent->code;
}

}  // namespace

void AddSpool(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);
  const auto add = [=](const char* name, const char* description,
                       const char* act) {
    CLI::App* command = group->add_subcommand(name, description);
    auto folder = std::make_shared<std::string>();
    command->add_option("DIR", *folder,
                        "Folder of spool files; without it all folders in "
                        "which relays of this user spool on this machine");
    command->callback(
        [=] { *action = [=] { return Ask(*context, act, *folder); }; });
  };
  add("send", "Deliver what ended trainings left, and delete what is delivered",
      "--send-spool");
  add("list", "Show what trainings left, and what is in use", "--list-spool");
}

}  // namespace traincheck::ctl
