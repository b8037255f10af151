// A run's processes: as `runs show` lists all of them and as `status` lists
// the ranks.
#ifndef TRAINCHECK_CTL_RENDER_PROCESS_H_
#define TRAINCHECK_CTL_RENDER_PROCESS_H_

#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {rank, pid, host, kind, worker_id, attempt, state, reason, records, dropped,
// lost, last_step, rings: [{ring, offered, committed, dropped, stored,
// stored_position}]}
Json ProcessJson(const v1::Process& process);

// The ranks of the newest attempt, [{rank, pid, host, state, reason, records,
// dropped, lost, others: [{pid, host, state, reason}]}] by rank. A rank of the
// world that no process has taken is in the list with state "missing" and its
// reason. Others claim the place that the process holds.
Json RanksJson(const v1::Run& run);

// The run's processes by attempt and rank, then those without a rank.
std::vector<v1::Process> ByPlace(const v1::Run& run);

// In that order.
std::string ProcessesTable(const v1::Run& run);

// Each line is indented below its run.
std::string RanksText(const v1::Run& run);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_PROCESS_H_
