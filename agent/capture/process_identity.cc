#include "agent/capture/process_identity.h"

#include <filesystem>
#include <utility>

#include "agent/capture/run_name.h"

namespace traincheck::agent {
namespace {

namespace fs = std::filesystem;

// What a notebook's kernel runs as, and the variable in which Jupyter names the
// notebook.
constexpr char kKernel[] = "ipykernel_launcher";
constexpr char kNotebook[] = "JPY_SESSION_NAME";

// The path without its ending; "" stays "".
std::string WithoutEnding(const fs::path& path) {
  return (path.parent_path() / path.stem()).string();
}

// The script's path within its repository, "" if it is in none. It is the same
// on all hosts, wherever the repository lies. Links are not followed: a
// script's name is the one that people start it by.
std::string PathInRepository(const System& system, uint32_t pid,
                             const fs::path& script) {
  const fs::path path =
      (script.is_absolute() ? script : system.folder(pid) / script)
          .lexically_normal();
  if (!path.is_absolute()) return "";
  for (fs::path folder = path.parent_path();; folder = folder.parent_path()) {
    if (system.exists((folder / ".git").string())) {
      return path.lexically_relative(folder).string();
    }
    if (folder == folder.parent_path()) return "";
  }
}

// The experiment groups runs of one program, to learn from them and to apply
// sets. `pid`: the process that was started with these arguments.
std::string ExperimentOf(const System& system, uint32_t pid,
                         const Script& started) {
  std::string given = system.environment("TRAINCHECK_EXPERIMENT");
  if (!given.empty()) return given;
  std::string script = started.name;
  // Without a script there is nothing to tell programs apart by.
  if (script.empty() || script == "-c") return "python";
  const std::string notebook = VariableOf(system, pid, kNotebook);
  if (fs::path(script).stem() == kKernel && !notebook.empty()) {
    script = notebook;
  } else if (started.is_module) {
    return script;
  }
  const std::string path = PathInRepository(system, pid, script);
  return path.empty() ? fs::path(script).stem().string() : WithoutEnding(path);
}

}  // namespace

// The rules of python's command line: options end at the script, at -m or at
// -c.
Script ScriptOf(const std::vector<std::string>& arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.empty() || argument == "-") return {};
    if (argument[0] != '-') return {argument};
    if (argument[1] == '-') {  // --check-hash-based-pycs takes a value
      if (argument == "--check-hash-based-pycs") ++i;
      continue;
    }
    // A cluster of one-letter options: c, m, X and W end it and take what
    // follows, in this argument or the next.
    const size_t taker = argument.find_first_of("cmXW", 1);
    if (taker == std::string::npos) continue;
    if (argument[taker] == 'c') return {"-c"};
    const bool joined = taker + 1 < argument.size();
    if (argument[taker] == 'm') {
      if (joined) return {argument.substr(taker + 1), true};
      return {i + 1 < arguments.size() ? arguments[i + 1] : "", true};
    }
    if (!joined) ++i;
  }
  return {};
}

// Called at the first record of a process that was not forked from a recorded
// one.
ProcessIdentity IdentifyProcess(const System& system) {
  ProcessIdentity identity;
  // A spawned process runs a line of multiprocessing's: the script is that of
  // the process which the user started.
  const uint32_t top = TopOfSpawnChain(system, system.pid);
  const std::vector<std::string> arguments = Arguments(system, top);
  const ProcessStat stat = ReadStat(system, system.pid);
  identity.host = system.host;
  identity.boot_id = system.boot_id;
  identity.pid = system.pid;
  identity.start_ticks = stat.start_ticks;
  identity.parent_pid = stat.parent;
  identity.parent_ticks = ReadStat(system, stat.parent).start_ticks;
  Script script = ScriptOf(arguments);
  identity.experiment = ExperimentOf(system, top, script);
  identity.script = std::move(script.name);
  if (const auto owner = RankAbove(system)) {
    identity.owner_pid = owner->pid;
    identity.owner_ticks = ReadStat(system, owner->pid).start_ticks;
  }
  const RunName run = NameRun(system);
  identity.run = run.id;
  identity.run_is_provisional = run.provisional;
  identity.attempt = AttemptOf(system);
  const std::string collect = system.environment("TRAINCHECK_COLLECT");
  if (collect == "1" || collect == "full") {
    identity.role = RunRole::kReference;
  }
  identity.check_set = system.environment("TRAINCHECK_CHECK");
  return identity;
}

// A forked child has the command line and the environment of its ancestor, so
// only what differs is read again.
ProcessIdentity IdentifyForkedChild(const System& system,
                                    const ProcessIdentity& ancestor) {
  // Run, attempt, script and versions are the ancestor's.
  ProcessIdentity identity = ancestor;
  const ProcessStat stat = ReadStat(system, system.pid);
  identity.pid = system.pid;
  identity.start_ticks = stat.start_ticks;
  identity.parent_pid = stat.parent;
  identity.parent_ticks = ReadStat(system, stat.parent).start_ticks;
  identity.kind = ProcessKind::kOther;
  identity.worker_id = 0;
  identity.owner_pid = ancestor.pid;
  identity.owner_ticks = ancestor.start_ticks;
  return identity;
}

}  // namespace traincheck::agent
