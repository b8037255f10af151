#include "ctl/commands/command_line.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/credentials.h"
#include "base/version.h"
#include "ctl/command_words.h"
#include "ctl/commands/commands.h"
#include "ctl/context.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "proto/settings/settings.h"

namespace traincheck::ctl {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  traincheckctl preflight -- python train.py\n"
    "  traincheckctl run --run good-1 --collect -- python train.py\n"
    "  traincheckctl infer --from good-1 --set my-rules\n"
    "  traincheckctl run --check my-rules -- torchrun train.py\n"
    "  traincheckctl violations watch\n"
    "Exit codes: docs/operations.md";

// The words are searched because CLI11 counts a variable of the environment
// like an option, and preflight has to know which of the two it was.
bool NamesServer(const std::string& word) {
  return word == "--server" || absl::StartsWith(word, "--server=");
}

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
  app->add_option("--tls-ca", context->tls_ca,
                  "Certificate of the authority that has signed traincheckd's; "
                  "needed for every address beyond this host")
      ->envname("TRAINCHECK_TLS_CA");
  app->add_option("--token-file", context->token_file,
                  "File of mode 0600 with the token that traincheckd knows you "
                  "by")
      ->envname("TRAINCHECK_TOKEN_FILE");
  app->add_option_function<std::string>(
         "-o,--output",
         [context](const std::string& format) {
           context->output =
               format == "json" ? OutputFormat::kJson : OutputFormat::kTable;
         },
         "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  app->set_version_flag("--version", absl::StrCat("traincheckctl ", kVersion));
}

// Every command leaves its work in *action, so that nothing runs before the
// whole command line is known to be right.
void AddCommands(CLI::App* app, const Context* context, Action* action) {
  for (const Command& command : kCommands) {
    command.add(app->add_subcommand(command.name, command.description), context,
                action);
  }
  app->require_subcommand(1);
  AllowGlobalOptions(app);
}

// The daemon that the administrator of this host names, if neither an option
// nor the environment does. "": done; else what is wrong with that file.
std::string TakeServerOfSite(Context* context) {
  if (context->server_named) return "";
  Settings settings;
  // No environment is given, so only the file of the site is read.
  std::string wrong = settings.Load(nullptr);
  const std::string server = settings.Get("TRAINCHECK_SERVER");
  if (server.empty()) return wrong;
  context->server = server;
  // With that server only: it has signed no other one's certificate.
  if (context->tls_ca.empty()) {
    context->tls_ca = settings.Get("TRAINCHECK_TLS_CA");
  }
  return wrong;
}

// All that this program starts finds the same files, wherever it works.
void Pass(const char* variable, const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  setenv(variable, error ? path.c_str() : absolute.c_str(), /*overwrite=*/1);
}

int Execute(const CLI::App& app, const Context& context, const Action& action) {
  if (context.has_command && !app.got_subcommand("run") &&
      !app.got_subcommand("preflight")) {
    Complain("only \"run\" and \"preflight\" take a command after \"--\"");
    return kExitUsage;
  }
  // By way of the environment: clients here, the relay and the training all
  // read the two files' names from there.
  const ClientFiles files = {context.tls_ca, context.token_file};
  Pass("TRAINCHECK_TLS_CA", files.tls_ca);
  Pass("TRAINCHECK_TOKEN_FILE", files.token);
  // Its lines on failed handshakes; what matters here is said by us.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // Once for all commands, before one of them has begun anything.
  if (absl::Status status = CheckAddress(context.server, files); !status.ok()) {
    Complain(std::string(status.message()));
    return kExitUsage;
  }
  return action();
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  Context context;
  // Cut here, because the parser would take options of the training for its
  // own.
  const auto* const dashes =
      std::find(argv + 1, argv + argc, std::string("--"));
  context.has_command = dashes != argv + argc;
  if (context.has_command) context.command.assign(dashes + 1, argv + argc);
  context.server_typed = std::any_of(argv + 1, dashes, NamesServer);
  Words words = WithoutHelpCommand(Words(argv + 1, dashes));

  CLI::App app("Learns what healthy trainings do and checks others against it");
  app.name("traincheckctl");
  Action action;
  AddOptions(&app, &context);
  AddCommands(&app, &context, &action);
  app.footer(kExamples);
  // Before the parser, which says of a wrong word only that it is not expected.
  if (const std::string wrong =
          WhatIsWrongWithCommand(app, words, context.has_command);
      !wrong.empty()) {
    Complain(wrong);
    return kExitUsage;
  }
  try {
    std::reverse(words.begin(), words.end());  // as the parser wants them
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    // CLI11 ends the parsing for help and version by an error with code 0,
    // which is not a mistake.
    if (error.get_exit_code() == kExitDone) return app.exit(error);
    Complain(ParseErrorText(app, error));
    return kExitUsage;
  }
  // By an option or by TRAINCHECK_SERVER.
  context.server_named = app.get_option("--server")->count() > 0;
  const std::string wrong = TakeServerOfSite(&context);
  if (!wrong.empty() && !app.got_subcommand("doctor")) {  // which says it too
    Complain(wrong);
    return kExitUsage;
  }
  return Execute(app, context, action);
}

}  // namespace traincheck::ctl
