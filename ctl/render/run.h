// Runs: `runs list` and `runs show`.
#ifndef TRAINCHECK_CTL_RENDER_RUN_H_
#define TRAINCHECK_CTL_RENDER_RUN_H_

#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {id, experiment, role, status, started, ended, attempts, world, first_step,
// last_step, records, dropped, lost}
Json RunRowJson(const v1::Run& run);

// Of the invariants that apply to the run, those that it gave an occasion.
uint32_t RulesWithOccasion(const v1::CheckProgress& check);

// {caught_up, finished, decided, total, violated, not_applied, no_occasion,
// unchecked_processes, unknown: [{reason, invariants}], partly_unknown:
// [{reason, invariants}], error}
Json CheckJson(const v1::CheckProgress& check);

// One line, and one more for each reason why something is unknown.
std::string CheckText(const v1::CheckProgress& check);

// The row and {check_set, processes, check, stored_bytes,
// quarantined_batches}; check is null for a run without a set, else as
// CheckJson.
Json RunDetailJson(const v1::Run& run);

std::string RunsTable(const std::vector<v1::Run>& runs);

std::string RunDetailText(const v1::Run& run);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_RUN_H_
