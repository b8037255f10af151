// Invariants: `invariants list|show`.
#ifndef TRAINCHECK_CTL_RENDER_INVARIANT_H_
#define TRAINCHECK_CTL_RENDER_INVARIANT_H_

#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {id, relation, text, scope, grade, support}
Json InvariantRowJson(const v1::Invariant& invariant);

// The row and {sets, definition}: the sets that contain it and the whole
// invariant in its exchange form.
Json InvariantDetailJson(const v1::Invariant& invariant);

std::string InvariantsTable(const v1::SetDetail& set);

std::string InvariantDetailText(const v1::Invariant& invariant);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_INVARIANT_H_
