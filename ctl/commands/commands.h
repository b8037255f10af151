// One function a command group: adds the group to the parser. A parsed command
// leaves its work in *action; context is filled when it runs.
//
// REQUIRES: app, context and action outlive the parsing and the action.
#ifndef TRAINCHECK_CTL_COMMANDS_COMMANDS_H_
#define TRAINCHECK_CTL_COMMANDS_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "ctl/context.h"

namespace traincheck::ctl {

void AddRun(CLI::App* app, const Context* context, Action* action);
void AddEnv(CLI::App* app, const Context* context, Action* action);
void AddRuns(CLI::App* app, const Context* context, Action* action);
void AddCheck(CLI::App* app, const Context* context, Action* action);
void AddInfer(CLI::App* app, const Context* context, Action* action);
void AddJobs(CLI::App* app, const Context* context, Action* action);
void AddSets(CLI::App* app, const Context* context, Action* action);
void AddInvariants(CLI::App* app, const Context* context, Action* action);
void AddImport(CLI::App* app, const Context* context, Action* action);
void AddViolations(CLI::App* app, const Context* context, Action* action);
void AddBackup(CLI::App* app, const Context* context, Action* action);
void AddSpool(CLI::App* app, const Context* context, Action* action);
void AddStatus(CLI::App* app, const Context* context, Action* action);
void AddDoctor(CLI::App* app, const Context* context, Action* action);
void AddCompletion(CLI::App* app, const Context* context, Action* action);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_COMMANDS_H_
