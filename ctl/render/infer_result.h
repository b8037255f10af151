// What `infer` prints when it is done.
#ifndef TRAINCHECK_CTL_RENDER_INFER_RESULT_H_
#define TRAINCHECK_CTL_RENDER_INFER_RESULT_H_

#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {job, set, status, invariants (a count), runs, version, dropped: [{reason,
// hypotheses}]}
Json InferResultJson(const v1::InferResult& result);

std::string InferResultText(const v1::InferResult& result);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_INFER_RESULT_H_
