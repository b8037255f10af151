// Incidents as people see them where some of their violations are silenced.
// Which violations have one cause is for the checker to say and does not
// change; a silence changes who stands for them: the first that none covers.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_FEEDBACK_SILENCED_INCIDENTS_H_
#define TRAINCHECK_SERVER_FEEDBACK_SILENCED_INCIDENTS_H_

#include <functional>
#include <vector>

#include "checker/incidents/ladder.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::server {

// Where the violation's rule stands on the ladder.
using PlaceOfViolation = std::function<Place(const v1::Violation&)>;

bool IsSilenced(const v1::Violation& violation);
// Of those stored before there were incidents: itself.
const std::string& IncidentOf(const v1::Violation& violation);

// Leads each incident whose lead is silenced by the first of its violations
// that is not, in the checker's order, and gives it the grade of those; all
// silenced, the lead stays and it is no alert. `place_of` is asked of these
// only. REQUIRES: all violations of one run, with silenced_by.
void LeadBySilences(const PlaceOfViolation& place_of,
                    std::vector<v1::Violation>* violations);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_SILENCED_INCIDENTS_H_
