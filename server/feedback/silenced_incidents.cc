#include "server/feedback/silenced_incidents.h"

#include <algorithm>
#include <map>
#include <string>

#include "checker/incidents/families.h"
#include "checker/incidents/incidents.h"

namespace traincheck::server {
namespace {

constexpr char kAdvice[] = "advice";
constexpr char kAlert[] = "alert";

using Members = std::vector<v1::Violation*>;

// What the checker chooses the lead by, from what is stored of a violation: the
// first that can be heard leads for the same reasons as the one that is
// silenced.
IncidentPart PartOf(const v1::Violation& violation, const Place& place) {
  IncidentPart part;
  part.id = violation.id();
  part.attempt = violation.attempt();
  if (violation.has_first_step()) part.first_step = violation.first_step();
  if (violation.has_last_step()) part.last_step = violation.last_step();
  part.ranks.assign(violation.ranks().begin(), violation.ranks().end());
  part.variables.assign(violation.variables().begin(),
                        violation.variables().end());
  part.place = place;
  part.advice = violation.grade() == kAdvice;
  part.learned = violation.basis() != kBuiltInBasis;
  return part;
}

void LeadAnew(const PlaceOfViolation& place_of, const Members& audible,
              const Members& members) {
  std::vector<IncidentPart> parts;
  for (const v1::Violation* violation : audible) {
    parts.push_back(PartOf(*violation, place_of(*violation)));
  }
  // By the checker's own function, so that the order is the one by which
  // incidents are led everywhere.
  const std::string lead = parts[LeadOf(parts)].id;
  const std::string before = IncidentOf(*members.front());
  for (v1::Violation* violation : members) {
    // What followed from the former lead still does. That one follows from
    // nothing that is known.
    if (violation->id() == before) violation->clear_cause();
    if (violation->id() == lead) violation->set_cause(lead);
    violation->set_incident(lead);
  }
}

}  // namespace

bool IsSilenced(const v1::Violation& violation) {
  return !violation.silenced_by().empty();
}

const std::string& IncidentOf(const v1::Violation& violation) {
  return violation.incident().empty() ? violation.id() : violation.incident();
}

void LeadBySilences(const PlaceOfViolation& place_of,
                    std::vector<v1::Violation>* violations) {
  std::map<std::string, Members> incidents;
  for (v1::Violation& violation : *violations) {
    incidents[IncidentOf(violation)].push_back(&violation);
  }
  for (const auto& [id, members] : incidents) {
    // Those that no silence covers.
    Members audible;
    bool lead_is_silenced = false, alert = false;
    for (v1::Violation* violation : members) {
      if (IsSilenced(*violation)) {
        lead_is_silenced |= violation->id() == id;
        continue;
      }
      alert |= violation->grade() != kAdvice;
      audible.push_back(violation);
    }
    // Nothing of it is silenced: all is as the checker said.
    if (audible.size() == members.size()) continue;
    for (v1::Violation* violation : members) {
      // The grade follows from those that can be heard alone: an incident whose
      // alerts are all silenced calls nobody.
      violation->set_incident_grade(alert ? kAlert : kAdvice);
    }
    // Where a follower alone is silenced, the lead stays; where all are, nobody
    // is called, and there is none to lead instead.
    if (lead_is_silenced && !audible.empty()) {
      LeadAnew(place_of, audible, members);
    }
  }
}

}  // namespace traincheck::server
