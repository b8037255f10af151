// The part of a capture plan that zooms in on an incident
// (docs/capture-plan.md).
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_ZOOM_ZOOM_PLAN_H_
#define TRAINCHECK_SERVER_ZOOM_ZOOM_PLAN_H_

#include <cstdint>
#include <vector>

#include "checker/zoom/zoomed_process.h"
#include "nlohmann/json.hpp"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::server {

// More would cost more than they show.
inline constexpr size_t kMaxZoomedVariables = 8;
inline constexpr size_t kMaxZoomedFunctions = 8;

// What the violations of an incident are about, those of the lead first.
ZoomSubject SubjectOf(const std::vector<v1::Violation>& incident);

// `steps`: how many are to be recorded in full.
nlohmann::json ZoomOn(const ZoomSubject& subject, uint32_t steps);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ZOOM_ZOOM_PLAN_H_
