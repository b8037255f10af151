// Incidents: violations with one cause, the lead first. What `violations list`,
// `violations show`, `preflight` and the verdict of `run` are ordered by.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CTL_RENDER_INCIDENT_H_
#define TRAINCHECK_CTL_RENDER_INCIDENT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// One violation of an incident.
struct IncidentMember {
  v1::Violation violation;
  size_t depth = 0;  // 0: the lead; 1: what follows from it; ...
  // It, or what it follows from, was found beside the lead: nothing shows that
  // the lead is its cause.
  bool beside = false;
};

// Never empty, the lead first, then what follows from it, then what was found
// beside it, each after what it follows from.
struct Incident {
  std::vector<IncidentMember> members;

  const v1::Violation& lead() const { return members.front().violation; }
};

// Is it the violation that stands for its incident?
bool Leads(const v1::Violation& violation);

// Is some violation of the incident that it belongs to an alert?
bool IsOfAlert(const v1::Violation& violation);
// "alert" or "advice": of that incident.
const char* IncidentGradeOf(const v1::Violation& violation);

// In the order of the first violation of each. A lead that is not among them
// is left out: the first of the others stands for it.
std::vector<Incident> IncidentsOf(const std::vector<v1::Violation>& violations);

// Removes those that are silenced; returns how many they were.
size_t RemoveSilenced(std::vector<v1::Violation>* violations);

// "2 violations are silenced: COMMAND shows them"; "" for none.
std::string SilencedText(size_t silenced, const std::string& command);

// Those that are alerts.
size_t CountAlertIncidents(const std::vector<Incident>& incidents);

// "2 incidents, 1 piece of advice", "no incident".
std::string CountedIncidents(const std::vector<Incident>& incidents);

// What follows from the lead, and what was found beside it, each under its
// heading, a line each, in the shape of a tree; "" if there is nothing else. An
// alert that nothing explains is shown with what to do: it may have a cause of
// its own.
std::string OthersText(const Incident& incident);

// "3 violations follow from it, 1 was found beside it"; "" if there is nothing
// else.
std::string CountedOthers(const Incident& incident);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_INCIDENT_H_
