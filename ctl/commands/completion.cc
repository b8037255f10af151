#include <iostream>
#include <string>

#include "ctl/commands/commands.h"
#include "ctl/commands/completion_scripts.h"
#include "ctl/exit_codes.h"

namespace traincheck::ctl {
namespace {

// IsMember below lets these three shells through.
std::string Script(const std::string& shell, const CLI::App& root) {
  if (shell == "bash") return BashScript(root);
  return shell == "zsh" ? ZshScript(root) : FishScript(root);
}

}  // namespace

void AddCompletion(CLI::App* completion, const Context* context,
                   Action* action) {
  // The tree of all commands. It is still being built here and complete when
  // the action runs.
  const CLI::App* const root = completion->get_parent();
  const CLI::Option* const shell =
      completion->add_option("SHELL", "bash, zsh or fish")
          ->type_name("TEXT")
          ->required()
          ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "Examples:\n"
      "  source <(traincheckctl completion bash)      # in ~/.bashrc\n"
      "  source <(traincheckctl completion zsh)       # in ~/.zshrc, after "
      "compinit\n"
      "  traincheckctl completion fish | source       # in config.fish");
  completion->callback([=] {
    *action = [=] {
      std::cout << Script(shell->as<std::string>(), *root) << std::flush;
      return kExitDone;
    };
  });
}

}  // namespace traincheck::ctl
