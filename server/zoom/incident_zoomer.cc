#include "server/zoom/incident_zoomer.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "base/printable_text.h"
#include "server/feedback/silenced_incidents.h"
#include "server/zoom/zoom_plan.h"

namespace traincheck::server {
namespace {

// How soon Stop returns, and how long an error is waited for.
constexpr absl::Duration kLookAround = absl::Milliseconds(200);
// Violations that are looked at in one go.
constexpr size_t kMaxChanges = 1000;

bool IsAlertLead(const v1::Violation& violation) {
  return IncidentOf(violation) == violation.id() &&
         violation.incident_grade() != "advice" && !IsSilenced(violation);
}

}  // namespace

void IncidentZoomer::Start() {
  if (use_.steps == 0) return;
  cursor_ = use_.board->Revision();
  thread_ = std::thread([this] { Loop(); });
}

void IncidentZoomer::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void IncidentZoomer::Loop() {
  while (!stopping_) {
    if (absl::Status s = Look(); !s.ok()) {
      spdlog::error("no zoom is made just now error={}",
                    QuotePrintable(std::string(s.message())));
      absl::SleepFor(kLookAround);
    }
    use_.board->WaitForChange(cursor_, kLookAround);
  }
}

absl::Status IncidentZoomer::Look() {
  const absl::StatusOr<ViolationBoard::Changes> changes =
      use_.violations->ChangesAfter(cursor_, "", kMaxChanges);
  if (!changes.ok()) return changes.status();
  std::set<std::string> runs;
  for (const v1::Violation& violation : changes->violations) {
    const bool is_advice = violation.incident_grade() == "advice";
    if (!is_advice && !settled_.contains(violation.id())) {
      runs.insert(violation.run());
    }
  }
  for (const std::string& run : runs) {
    if (absl::Status s = LookAt(run); !s.ok()) return s;
  }
  cursor_ = changes->revision;
  return absl::OkStatus();
}

absl::Status IncidentZoomer::LookAt(const std::string& run) {
  const auto all = use_.violations->List(run);
  if (!all.ok()) return all.status();
  // The lead first, whose subject counts most.
  std::map<std::string, std::vector<v1::Violation>> incidents;
  for (const v1::Violation& violation : *all) {
    if (IsAlertLead(violation)) incidents[violation.id()] = {violation};
  }
  for (const v1::Violation& violation : *all) {
    const auto incident = incidents.find(IncidentOf(violation));
    if (incident != incidents.end() && incident->first != violation.id()) {
      incident->second.push_back(violation);
    }
  }
  for (const auto& [lead, incident] : incidents) {
    const ZoomSubject subject = SubjectOf(incident);
    // Without functions and variables there is nothing to look at.
    if (subject.empty() || settled_.contains(lead)) continue;
    stored::Zoom zoom;
    for (const v1::Violation& violation : incident) {
      zoom.add_violations(violation.id());
    }
    zoom.mutable_functions()->Assign(subject.functions.begin(),
                                     subject.functions.end());
    zoom.mutable_variables()->Assign(subject.variables.begin(),
                                     subject.variables.end());
    absl::Status s =
        use_.plans->ZoomIn(run, std::move(zoom), ZoomOn(subject, use_.steps));
    if (!s.ok()) return s;
    for (const v1::Violation& violation : incident) {
      settled_.insert(violation.id());
    }
  }
  return absl::OkStatus();
}

}  // namespace traincheck::server
