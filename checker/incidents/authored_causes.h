// Which violations follow from which because the author of a rule says so: an
// optimizer that is stepped twice is one error and breaks three rules, and no
// record shows that. Unlike what shares variables or begins in one step this
// does for errors that begin with the training.
//
// Threads: pure function.
#ifndef TRAINCHECK_CHECKER_INCIDENTS_AUTHORED_CAUSES_H_
#define TRAINCHECK_CHECKER_INCIDENTS_AUTHORED_CAUSES_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "checker/incidents/incidents.h"

namespace traincheck {

// By part: of those that bring it (IncidentPart::brings) and come before it in
// the order the one that comes last. nullopt: there is none.
std::vector<std::optional<size_t>> AuthoredCauses(
    const std::vector<IncidentPart>& parts, const std::vector<size_t>& order);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_INCIDENTS_AUTHORED_CAUSES_H_
