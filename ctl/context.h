// What every command gets: the global options and what follows "--".
#ifndef TRAINCHECK_CTL_CONTEXT_H_
#define TRAINCHECK_CTL_CONTEXT_H_

#include <functional>
#include <string>
#include <vector>

#include "base/runtime_folder.h"

namespace traincheck::ctl {

enum class OutputFormat { kTable, kJson };

struct Context {
  std::string server = DefaultAddress();
  bool server_named = false;  // by an option or the environment
  bool server_typed = false;  // by an option
  std::string tls_ca;         // file; empty: none
  std::string token_file;     // empty: none
  OutputFormat output = OutputFormat::kTable;
  // The words after "--": a training's command line, for `run` and `preflight`.
  // Cut off before the option parser sees them, so that they arrive untouched.
  std::vector<std::string> command;
  bool has_command = false;

  bool json() const { return output == OutputFormat::kJson; }
};

// Set by the parsed command, called once after parsing; returns the exit code.
using Action = std::function<int()>;

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_CONTEXT_H_
