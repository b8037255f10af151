// Which run a process belongs to, and which attempt of it. The first that
// exists:
//
//   1. TRAINCHECK_RUN;
//   2. what its rank says, for a process below a rank: see rank_sign.h;
//   3. Slurm: job and step, "JOB.STEP"; the leader's job of a heterogeneous
//      one. Without a step (several trainings may follow one another in a job's
//      script) the job only goes before what the rules below give;
//   4. a Kubernetes pod: JOB_UID or JOB_NAME, which its manifest takes from the
//      labels batch.kubernetes.io/controller-uid and job-name;
//   5. torchrun: TORCHELASTIC_RUN_ID unless "none"; then, if all ranks are on
//      this host, the torchrun process;
//   6. Open MPI and other PMIx launchers: PMIX_NAMESPACE;
//   7. a provisional name of this process's own making: ranks that meet in
//      init_process_group agree on one of theirs.
//
// Threads: pure functions of System.
#ifndef TRAINCHECK_AGENT_CAPTURE_RUN_NAME_H_
#define TRAINCHECK_AGENT_CAPTURE_RUN_NAME_H_

#include <cstdint>
#include <string>

#include "agent/capture/rank_sign.h"
#include "agent/capture/system.h"

namespace traincheck::agent {

// The daemon takes no longer one.
inline constexpr size_t kMaxRunNameBytes = 128;

struct RunName {
  std::string id;
  bool provisional = false;
};
RunName NameRun(const System& system);

// What the daemon takes as a run's id: other characters become '-', the rest
// is cut.
std::string AsRunName(std::string text);

// torchrun's restarts, those of a requeued Slurm job counted above them.
uint32_t AttemptOf(const System& system);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_RUN_NAME_H_
