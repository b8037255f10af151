#include "agent/capture/run_name.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace traincheck::agent {
namespace {

// Requeues and torchrun's restarts share one number; torchrun restarts a job's
// processes far less often than this.
constexpr uint64_t kRestartsPerRequeue = 1000;

// A name by host, pid and start time, which no other process has had.
std::string Local(const System& system, uint32_t pid) {
  return system.host + "-" + std::to_string(pid) + "-" +
         std::to_string(ReadStat(system, pid).start_ticks);
}

// The jobs of a heterogeneous one have ids of their own; that of the leader is
// common to all.
std::string SlurmJob(const System& system) {
  const std::string leader = system.environment("SLURM_JOB_ID_HET_GROUP_0");
  return leader.empty() ? system.environment("SLURM_JOB_ID") : leader;
}

std::string PodJob(const System& system) {
  // Elsewhere a variable JOB_NAME means anything.
  if (system.environment("KUBERNETES_SERVICE_HOST").empty()) return "";
  const std::string uid = system.environment("JOB_UID");
  const std::string name = system.environment("JOB_NAME");
  return name.empty() || uid.empty() ? name + uid : name + "-" + uid;
}

// "": torchrun gives no name, or ranks on other hosts have other torchrun
// processes.
std::string TorchrunOf(const System& system, uint32_t top) {
  std::string id = VariableOf(system, top, "TORCHELASTIC_RUN_ID");
  if (id.empty()) return "";
  if (id != "none") return id;
  const std::string world = VariableOf(system, top, "WORLD_SIZE");
  if (world.empty() || world != VariableOf(system, top, "LOCAL_WORLD_SIZE"))
    return "";
  return Local(system, ReadStat(system, top).parent);
}

// Rules 4 to 7 of the header.
RunName NameByLauncher(const System& system) {
  const uint32_t top = TopOfSpawnChain(system, system.pid);
  const std::string pod = PodJob(system);
  if (!pod.empty()) return {pod, false};
  const std::string torchrun = TorchrunOf(system, top);
  if (!torchrun.empty()) return {torchrun, false};
  const std::string mpi = VariableOf(system, top, "PMIX_NAMESPACE");
  if (!mpi.empty()) return {mpi, false};
  // Ranks that one script started share this name even if they never meet.
  if (ParseNumber(VariableOf(system, top, "WORLD_SIZE")) > 1) {
    // Its start tells trainings apart that follow each other on one port.
    const ProcessStat parent = ReadStat(system, ReadStat(system, top).parent);
    return {VariableOf(system, top, "MASTER_ADDR") + "-" +
                VariableOf(system, top, "MASTER_PORT") + "-" +
                std::to_string(parent.start_ticks),
            true};
  }
  return {Local(system, top), true};
}

}  // namespace

// A name that the user gave is taken as it is.
RunName NameRun(const System& system) {
  const std::string given = system.environment("TRAINCHECK_RUN");
  if (!given.empty()) return {given, false};
  if (const auto above = RankAbove(system)) return {above->run, false};
  const std::string job = SlurmJob(system);
  const std::string step = system.environment("SLURM_STEP_ID");
  if (!job.empty() && !step.empty())
    return {AsRunName(job + "." + step), false};
  RunName name = NameByLauncher(system);
  if (!job.empty()) name.id = job + "-" + name.id;
  name.id = AsRunName(name.id);
  return name;
}

std::string AsRunName(std::string text) {
  text.resize(std::min(text.size(), kMaxRunNameBytes));
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) {
        return std::isalnum(c) == 0 && std::strchr("._:-", c) == nullptr;
      },
      '-');
  return text;
}

// Launchers without such counters give 0; the daemon then tells attempts apart
// by nonce.
uint32_t AttemptOf(const System& system) {
  const uint64_t requeues =
      ParseNumber(system.environment("SLURM_RESTART_COUNT"));
  const uint64_t restarts =
      ParseNumber(system.environment("TORCHELASTIC_RESTART_COUNT"));
  return static_cast<uint32_t>(requeues * kRestartsPerRequeue + restarts);
}

}  // namespace traincheck::agent
