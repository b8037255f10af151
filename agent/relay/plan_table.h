// The newest capture plan of each run that has processes here, as files to
// hand over (agent/ring/ring_abi.h, PlanMessage). What one stream heard is for
// all processes of the run, also while the server is away.
//
// Owned by the Relay. Threads: the loop's.
#ifndef TRAINCHECK_AGENT_RELAY_PLAN_TABLE_H_
#define TRAINCHECK_AGENT_RELAY_PLAN_TABLE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "agent/relay/unique_fd.h"
#include "agent/ring/ring_abi.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

struct HeldPlan {
  PlanMessage message;
  UniqueFd file;  // sealed
};

class PlanTable {
 public:
  // Keeps the plan if it is newer than the run's. InvalidArgument if no
  // process would take it, Unavailable if there is no memory for it.
  [[nodiscard]] absl::Status Put(const std::string& run,
                                 const v1::PlanChange& change);
  // Null: there is none.
  const HeldPlan* Find(const std::string& run) const;

 private:
  std::map<std::string, HeldPlan> plans_;  // by run
};

// Hands the plan over. False: the process does not read just now. One that is
// gone needs none.
bool SendPlan(int socket, const HeldPlan& plan);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_PLAN_TABLE_H_
