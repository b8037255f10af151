// Inference jobs: `jobs list|show|cancel` and `infer --detach`.
#ifndef TRAINCHECK_CTL_RENDER_JOB_H_
#define TRAINCHECK_CTL_RENDER_JOB_H_

#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {id, set, runs, status, stage, fraction, reason, queued, started, ended,
// invariants (a count), peak_bytes}
Json JobRowJson(const v1::Job& job);

// The row and {relations, version, dropped: [{reason, hypotheses}]}.
Json JobDetailJson(const v1::Job& job);

// The row with the keys of `infer` that it does not have: {job, ...}.
Json DetachedJobJson(const v1::Job& job);

std::string JobsTable(const std::vector<v1::Job>& jobs);
std::string JobText(const v1::Job& job);
std::string DetachedJobText(const v1::Job& job);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_JOB_H_
