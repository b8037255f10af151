#include "server/zoom/zoom_reports.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"
#include "checker/zoom/closer_look.h"
#include "checker/zoom/zoom_reader.h"
#include "server/feedback/silenced_incidents.h"
#include "server/store/batch_reader.h"

namespace traincheck::server {
namespace {

// The subject is that of the time when the plan was made: the incident may have
// grown since, but only this was recorded in full.
ZoomSubject SubjectOf(const stored::Zoom& zoom) {
  ZoomSubject subject;
  subject.functions.insert(zoom.functions().begin(), zoom.functions().end());
  subject.variables.insert(zoom.variables().begin(), zoom.variables().end());
  return subject;
}

// The newest that was made for one of these violations; null: none was.
const stored::Plan* PlanFor(const std::set<std::string>& violations,
                            const std::vector<stored::Plan>& plans) {
  const auto is_for = [&](const stored::Plan& plan) {
    const auto& of = plan.zoom().violations();
    return std::any_of(of.begin(), of.end(), [&](const std::string& id) {
      return violations.contains(id);
    });
  };
  const auto found = std::find_if(plans.rbegin(), plans.rend(), is_for);
  return found == plans.rend() ? nullptr : &*found;
}

// Names of functions and variables are a script's own, and no UTF-8 must be
// sent that is not.
std::string Text(const std::string& recorded) {
  return EscapeUnprintable(recorded);
}

void Add(const Observation& observation, v1::ZoomReport* report) {
  v1::ZoomObservation* added = report->add_observations();
  added->set_what(Text(observation.what));
  added->mutable_ranks()->Assign(observation.ranks.begin(),
                                 observation.ranks.end());
  added->set_first_step(observation.first_step);
  added->set_last_step(observation.last_step);
  added->set_seen(Text(observation.seen));
}

void Add(int32_t rank, const ZoomedProcess& found, bool has_ended,
         v1::ZoomReport* report) {
  v1::ZoomedRank* added = report->add_ranks();
  added->set_rank(rank);
  added->set_steps(found.steps.size());
  added->set_over(found.over || has_ended);
  added->set_missing(Text(found.missing));
}

}  // namespace

absl::StatusOr<v1::ZoomReport> ZoomReports::Report(const std::string& violation,
                                                   const Sees& sees,
                                                   const GoOn& go_on) const {
  const auto read = use_.board->Find(violation);
  if (!read.ok()) return read.status();
  const std::optional<v1::Violation>& found = *read;
  if (!found.has_value() || !sees(found->run())) {
    return absl::NotFoundError(absl::StrCat(
        "there is no violation ", violation,
        ": traincheckctl violations list shows those that there are"));
  }
  // By any of its violations: another one may have led it when the zoom was
  // made.
  std::set<std::string> incident = {IncidentOf(*found), found->id()};
  const auto all = use_.board->List(found->run());
  if (!all.ok()) return all.status();
  for (const v1::Violation& other : *all) {
    if (IncidentOf(other) == IncidentOf(*found)) incident.insert(other.id());
  }
  v1::ZoomReport report;
  report.set_run(found->run());
  const absl::StatusOr<std::vector<stored::Plan>> plans =
      use_.plans->Zooms(found->run());
  if (!plans.ok()) return plans.status();
  const stored::Plan* plan = PlanFor(incident, *plans);
  if (plan == nullptr) return report;
  report.set_plan_version(plan->version());
  report.set_from_step(plan->from_step());
  if (absl::Status s = Read(*found, *plan, go_on, &report); !s.ok()) return s;
  return report;
}

absl::Status ZoomReports::Read(const v1::Violation& violation,
                               const stored::Plan& plan, const GoOn& go_on,
                               v1::ZoomReport* report) const {
  // Held first and looked for then, see RunPins.
  const RunPins::Pin pin = use_.pins->Hold(violation.run());
  const absl::StatusOr<RunView> run = use_.registry->View(violation.run());
  if (!run.ok()) return run.status();
  if (run->records_deleted) {
    report->set_unavailable("retention deleted the records of the run");
    return absl::OkStatus();
  }
  const ZoomSubject subject = SubjectOf(plan.zoom());
  std::map<int32_t, ZoomedProcess> ranks;
  // A zoom that was cut short by the end of its rank is over as well: nothing
  // more comes.
  std::map<int32_t, bool> has_ended;
  // Ranks of the attempt in which the violation was found, one after the other.
  for (const RunView::Process& process : run->processes) {
    if (!process.is_main || !process.rank || process.refused ||
        process.attempt != violation.attempt()) {
      continue;
    }
    ZoomReader reader(&subject, plan.version());
    bool cancelled = false;
    absl::Status read =
        ReadBatches(*use_.store, {run->number, process.number, 0},
                    process.next_batch, [&](const StoredBatch& batch) {
                      // For each batch: a long run takes a while to read, and
                      // its client may have left.
                      cancelled = !go_on();
                      if (!cancelled) reader.Consume(batch);
                      return !cancelled && !reader.over();
                    });
    if (!read.ok()) return read;
    if (cancelled) return absl::CancelledError("the client has left");
    // It has recorded nothing under this plan, so it says nothing.
    if (!reader.found().began) continue;
    has_ended[*process.rank] = process.end.has_value();
    ranks[*process.rank] = reader.found();
  }
  for (const auto& [rank, found] : ranks) {
    Add(rank, found, has_ended[rank], report);
  }
  for (const Observation& observation : LookCloser(ranks)) {
    Add(observation, report);
  }
  return absl::OkStatus();
}

}  // namespace traincheck::server
