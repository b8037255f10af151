// The commands, in the order of the help. Each has a file of its own with one
// function, which adds options and commands below to the parser's `command`. A
// parsed command leaves its work in *action; context is filled when it runs.
//
// REQUIRES: command, context and action outlive the parsing and the action.
#ifndef TRAINCHECK_CTL_COMMANDS_COMMANDS_H_
#define TRAINCHECK_CTL_COMMANDS_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "ctl/context.h"

namespace traincheck::ctl {

void AddPreflight(CLI::App* command, const Context* context, Action* action);
void AddRun(CLI::App* command, const Context* context, Action* action);
void AddEnv(CLI::App* command, const Context* context, Action* action);
void AddRuns(CLI::App* command, const Context* context, Action* action);
void AddInfer(CLI::App* command, const Context* context, Action* action);
void AddCheck(CLI::App* command, const Context* context, Action* action);
void AddCompare(CLI::App* command, const Context* context, Action* action);
void AddJobs(CLI::App* command, const Context* context, Action* action);
void AddSets(CLI::App* command, const Context* context, Action* action);
void AddInvariants(CLI::App* command, const Context* context, Action* action);
void AddImport(CLI::App* command, const Context* context, Action* action);
void AddViolations(CLI::App* command, const Context* context, Action* action);
void AddSilences(CLI::App* command, const Context* context, Action* action);
void AddBackup(CLI::App* command, const Context* context, Action* action);
void AddCerts(CLI::App* command, const Context* context, Action* action);
void AddToken(CLI::App* command, const Context* context, Action* action);
void AddSpool(CLI::App* command, const Context* context, Action* action);
void AddStatus(CLI::App* command, const Context* context, Action* action);
void AddDoctor(CLI::App* command, const Context* context, Action* action);
void AddCompletion(CLI::App* command, const Context* context, Action* action);

struct Command {
  const char* name;
  const char* description;
  void (*add)(CLI::App* command, const Context* context, Action* action);
};

inline constexpr Command kCommands[] = {
    {"preflight",
     "Looks at the first steps of a training: preflight [OPTIONS] -- "
     "COMMAND...",
     AddPreflight},
    {"run", "Starts a training under the agent: run [OPTIONS] -- COMMAND...",
     AddRun},
    {"env", "Prints shell lines that put a job script under the agent", AddEnv},
    {"runs", "Recorded runs", AddRuns},
    {"infer", "Learns a set of invariants from recorded runs", AddInfer},
    {"check", "Checks a stored run against a set of invariants", AddCheck},
    {"compare", "Where two stored runs of one training differ first",
     AddCompare},
    {"jobs", "Inference jobs", AddJobs},
    {"sets", "Sets of invariants", AddSets},
    {"invariants", "Rules of a set", AddInvariants},
    {"import", "Makes a run from a folder of TrainCheck's traces", AddImport},
    {"violations", "Rules that were broken", AddViolations},
    {"silences", "Rules and variables that raise no alert", AddSilences},
    {"backup", "A copy of the server's data while it works", AddBackup},
    {"certs", "Certificates for traincheckd beyond one host", AddCerts},
    {"token", "Tokens, by which traincheckd knows who speaks to it", AddToken},
    {"spool", "Records that were kept on disk while traincheckd was away",
     AddSpool},
    {"status", "The server, runs in progress, and why a rank is missing",
     AddStatus},
    {"doctor", "Check whether trainings started here would be recorded",
     AddDoctor},
    {"completion", "Prints a script that completes commands and options",
     AddCompletion},
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_COMMANDS_H_
