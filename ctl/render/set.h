// Sets of invariants: `sets list|show` and what `infer` and `invariants
// import` answer.
#ifndef TRAINCHECK_CTL_RENDER_SET_H_
#define TRAINCHECK_CTL_RENDER_SET_H_

#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {name, version, invariants (a count), created, runs}
Json SetRowJson(const v1::SetSummary& set);

// The row and {members}: rows of `invariants list`.
Json SetDetailJson(const v1::SetDetail& set);

std::string SetsTable(const std::vector<v1::SetSummary>& sets);

std::string SetDetailText(const v1::SetDetail& set);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_SET_H_
