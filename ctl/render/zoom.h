// What a zoom on an incident has shown: `violations show`.
#ifndef TRAINCHECK_CTL_RENDER_ZOOM_H_
#define TRAINCHECK_CTL_RENDER_ZOOM_H_

#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/zoom.pb.h"

namespace traincheck::ctl {

// Lines below an incident; "" where no zoom was made for it.
std::string ZoomText(const v1::ZoomReport& report);

// {plan_version, from_step, ranks: [{rank, steps, over, missing}],
// observations: [{what, ranks, first_step, last_step, seen}], unavailable};
// null where no zoom was made.
Json ZoomJson(const v1::ZoomReport& report);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_ZOOM_H_
