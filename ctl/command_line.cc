#include "ctl/command_line.h"

#include <algorithm>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/credentials.h"
#include "ctl/commands/commands.h"
#include "ctl/context.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"

namespace traincheck::ctl {
namespace {

// Global options may also stand behind the command's name.
void AllowGlobalOptions(CLI::App* app) {
  for (CLI::App* command : app->get_subcommands({})) {
    command->fallthrough();
    AllowGlobalOptions(command);
  }
}

void AddOptions(CLI::App* app, Context* context) {
  app->add_option("--server", context->server,
                  "Address of traincheckd: HOST:PORT or unix:PATH")
      ->capture_default_str()
      ->envname("TRAINCHECK_SERVER");
  app->add_option_function<std::string>(
         "-o,--output",
         [context](const std::string& format) {
           context->output =
               format == "json" ? OutputFormat::kJson : OutputFormat::kTable;
         },
         "table or json")
      ->check(CLI::IsMember({"table", "json"}));
}

void AddCommands(CLI::App* app, const Context* context, Action* action) {
  AddRun(app, context, action);
  AddEnv(app, context, action);
  AddRuns(app, context, action);
  AddInfer(app, context, action);
  AddCheck(app, context, action);
  AddJobs(app, context, action);
  AddSets(app, context, action);
  AddInvariants(app, context, action);
  AddImport(app, context, action);
  AddViolations(app, context, action);
  AddBackup(app, context, action);
  AddSpool(app, context, action);
  AddStatus(app, context, action);
  AddDoctor(app, context, action);
  app->require_subcommand(1);
  AllowGlobalOptions(app);
}

int Execute(const CLI::App& app, const Context& context, const Action& action) {
  if (context.has_command && !app.got_subcommand("run")) {
    Complain("only \"run\" takes a command after \"--\"");
    return kExitUsage;
  }
  if (absl::Status status = CheckAddress(context.server); !status.ok()) {
    Complain(std::string(status.message()));
    return kExitUsage;
  }
  return action();
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  Context context;
  const auto* const dashes =
      std::find(argv + 1, argv + argc, std::string("--"));
  context.has_command = dashes != argv + argc;
  if (context.has_command) context.command.assign(dashes + 1, argv + argc);

  CLI::App app("Learns what healthy trainings do and checks others against it");
  app.name("traincheckctl");
  Action action;
  AddOptions(&app, &context);
  AddCommands(&app, &context, &action);
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == kExitDone ? kExitDone : kExitUsage;
  }
  context.server_named = app.get_option("--server")->count() > 0;
  return Execute(app, context, action);
}

}  // namespace traincheck::ctl
