#include "server/zoom/incident_zoomer.h"

#include <algorithm>
#include <optional>
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

bool HasSubject(const v1::Violation& violation) {
  return !SubjectOf({violation}).empty();
}

}  // namespace

void IncidentZoomer::Start() {
  if (use_.steps == 0) return;
  // Only changes from here on: what is there already gets its zoom when it
  // changes.
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
  const auto changes = use_.violations->ChangedRunsAfter(cursor_, kMaxChanges);
  if (!changes.ok()) return changes.status();
  for (const auto& [run, changed] : changes->runs) {
    // Nobody is left to record, or nobody can be asked to.
    if (!GoesOn(run)) continue;
    OfRun& of = runs_[run];
    if (of.given_up) continue;
    const absl::Status looked =
        changed.ok() ? LookAt(run, *changed, &of) : changed.status();
    // The disk refuses just now, for all runs.
    if (absl::IsUnavailable(looked)) return looked;
    if (looked.ok()) continue;
    // Once and not with each change: an incident that goes on changes with
    // every step.
    of.given_up = true;
    spdlog::error("incidents of a run get no zoom run={} error={}", run,
                  QuotePrintable(std::string(looked.message())));
  }
  if (!changes->runs.empty()) {
    // Only beside news, since it asks the registry for each run.
    std::erase_if(runs_, [&](const auto& of) { return !GoesOn(of.first); });
  }
  cursor_ = changes->revision;
  return absl::OkStatus();
}

bool IncidentZoomer::GoesOn(const std::string& run) const {
  const std::optional<RunOutline> outline = use_.registry->OutlineOf(run);
  return outline.has_value() && !outline->ended;
}

absl::Status IncidentZoomer::LookAt(const std::string& run,
                                    const Violations& changed, OfRun* of) {
  // Without functions and variables there is nothing to look at.
  const bool is_news = std::any_of(
      changed.begin(), changed.end(), [&](const v1::Violation& violation) {
        return violation.incident_grade() != "advice" &&
               !of->settled.contains(violation.id()) && HasSubject(violation);
      });
  if (!is_news) return absl::OkStatus();
  // All of the run: an incident is zoomed in on as a whole, also where one
  // violation of it has changed.
  const auto all = use_.violations->List(run);
  if (!all.ok()) return all.status();
  // The lead first, whose subject counts most.
  std::map<std::string, Violations> incidents;
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
    if (!of->settled.contains(lead)) {
      // Not settled: a violation that joins later may name a function or a
      // variable.
      if (std::none_of(incident.begin(), incident.end(), HasSubject)) continue;
      if (absl::Status s = ZoomIn(run, incident); !s.ok()) return s;
    }
    for (const v1::Violation& violation : incident) {
      // With all of its violations, so that it stays settled if another one
      // leads it.
      of->settled.insert(violation.id());
    }
  }
  return absl::OkStatus();
}

absl::Status IncidentZoomer::ZoomIn(const std::string& run,
                                    const Violations& incident) {
  const ZoomSubject subject = SubjectOf(incident);
  stored::Zoom zoom;
  for (const v1::Violation& violation : incident) {
    zoom.add_violations(violation.id());
  }
  zoom.mutable_functions()->Assign(subject.functions.begin(),
                                   subject.functions.end());
  zoom.mutable_variables()->Assign(subject.variables.begin(),
                                   subject.variables.end());
  return use_.plans->ZoomIn(run, std::move(zoom), ZoomOn(subject, use_.steps));
}

}  // namespace traincheck::server
