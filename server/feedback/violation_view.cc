#include "server/feedback/violation_view.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"
#include "server/feedback/silenced_incidents.h"

namespace traincheck::server {
namespace {

using Violations = ViolationView::Violations;

absl::Status NoSuchViolation(const std::string& id) {
  return absl::NotFoundError(
      absl::StrCat("there is no violation ", QuotePrintable(id)));
}

// By run, each in their order.
std::map<std::string, Violations> ByRun(Violations violations) {
  std::map<std::string, Violations> runs;
  for (v1::Violation& violation : violations) {
    runs[violation.run()].push_back(std::move(violation));
  }
  return runs;
}

// A client that is sent a lead has been sent all that follows from it by then,
// and can show the incident at once.
void PutLeadsLast(Violations* violations) {
  std::stable_partition(violations->begin(), violations->end(),
                        [](const v1::Violation& violation) {
                          return IncidentOf(violation) != violation.id();
                        });
}

// For one run: the violations that changed, and the rest of those incidents
// that a silence has given another lead.
Violations WithWholeIncidents(const Violations& changes,
                              const Violations& all) {
  std::map<std::string, std::string> told;  // incident by violation, as stored
  for (const v1::Violation& change : changes) {
    told[change.id()] = IncidentOf(change);
  }
  std::set<std::string> led_anew;
  for (const v1::Violation& violation : all) {
    const auto change = told.find(violation.id());
    if (change != told.end() && change->second != IncidentOf(violation)) {
      led_anew.insert(IncidentOf(violation));
    }
  }
  Violations found;
  for (const v1::Violation& violation : all) {
    if (told.contains(violation.id()) ||
        led_anew.contains(IncidentOf(violation))) {
      found.push_back(violation);
    }
  }
  PutLeadsLast(&found);
  return found;
}

}  // namespace

absl::StatusOr<Violations> ViolationView::List(const std::string& run) const {
  absl::StatusOr<Violations> all = use_.board->List(run);
  if (!all.ok()) return all;
  const absl::Status annotated = Annotate(run, &*all);
  if (!annotated.ok()) return annotated;
  return all;
}

absl::StatusOr<v1::Violation> ViolationView::Find(const std::string& id) const {
  const auto found = use_.board->Find(id);
  if (!found.ok()) return found.status();
  if (!found->has_value()) return NoSuchViolation(id);
  // The whole run: a silence may have given its incident another lead.
  absl::StatusOr<Violations> all = List((*found)->run());
  if (!all.ok()) return all.status();
  for (v1::Violation& violation : *all) {
    if (violation.id() == id) return std::move(violation);
  }
  return NoSuchViolation(id);
}

// Marks are given by incident: a mark on a lead is for all that follows from
// it.
absl::StatusOr<Violations> ViolationView::FindIncident(
    const std::string& id) const {
  absl::StatusOr<v1::Violation> named = Find(id);
  if (!named.ok()) return named.status();
  Violations incident = {*named};
  // A violation that leads nothing stands for itself alone.
  if (IncidentOf(*named) != id) return incident;
  absl::StatusOr<Violations> all = List(named->run());
  if (!all.ok()) return all.status();
  for (v1::Violation& violation : *all) {
    if (violation.id() != id && IncidentOf(violation) == id) {
      incident.push_back(std::move(violation));
    }
  }
  return incident;
}

absl::StatusOr<ViolationBoard::Changes> ViolationView::ChangesAfter(
    uint64_t after, const std::string& run, size_t limit) const {
  auto changes = use_.board->ChangesAfter(after, run, limit);
  if (!changes.ok()) return changes;
  const std::vector<v1::Silence> active = use_.silences->Active();
  // Without silences the leads are the checker's, and the page is enough.
  if (!active.empty()) {
    Violations shown;
    for (const auto& [id, of_run] : ByRun(std::move(changes->violations))) {
      absl::StatusOr<Violations> all = use_.board->List(id);
      if (!all.ok()) return all.status();
      AddSilences(active, id, &*all);
      // Who leads by silences follows from all violations of the run, so they
      // are read, though the page names few of them.
      const Violations whole = WithWholeIncidents(of_run, *all);
      shown.insert(shown.end(), whole.begin(), whole.end());
    }
    changes->violations = std::move(shown);
  }
  if (absl::Status s = AddMarks(&changes->violations); !s.ok()) return s;
  return changes;
}

absl::StatusOr<ViolationView::ChangedRuns> ViolationView::ChangedRunsAfter(
    uint64_t after, size_t limit) const {
  ChangedRuns changed;
  auto page = ChangesAfter(after, "", limit);
  if (page.ok()) {
    changed.revision = page->revision;
    for (auto& [run, violations] : ByRun(std::move(page->violations))) {
      changed.runs.emplace(run, violations);
    }
    return changed;
  }
  // A single damaged run ends the page. Other errors pass, and the caller comes
  // back.
  if (!absl::IsDataLoss(page.status())) return page.status();
  // One by one. The revision first: what comes meanwhile is found again.
  changed.revision = use_.board->Revision();
  for (const std::string& run : Runs()) {
    const auto changes = ChangesAfter(after, run, SIZE_MAX);
    if (!changes.ok() && !absl::IsDataLoss(changes.status())) {
      return changes.status();
    }
    if (!changes.ok()) {
      changed.runs.emplace(run, changes.status());
    } else if (!changes->violations.empty()) {
      changed.runs.emplace(run, changes->violations);
    }
  }
  return changed;
}

// Silences first: they may change leads. Marks stay with their violations.
absl::Status ViolationView::Annotate(const std::string& run,
                                     Violations* violations) const {
  AddSilences(use_.silences->Active(), run, violations);
  return AddMarks(violations);
}

absl::Status ViolationView::AddMarks(Violations* violations) const {
  std::map<std::string, Marks::OfRun> by_run;
  for (v1::Violation& violation : *violations) {
    // Marks of a run are read once for all of its violations.
    const auto [marks, is_new] = by_run.try_emplace(violation.run());
    if (is_new) {
      const std::optional<uint64_t> number =
          use_.registry->NumberOf(violation.run());
      if (!number.has_value()) continue;  // it is being deleted
      absl::StatusOr<Marks::OfRun> read = use_.marks->Of(*number);
      if (!read.ok()) return read.status();
      marks->second = *std::move(read);
    }
    const auto mark = marks->second.find(violation.id());
    if (mark == marks->second.end()) continue;
    violation.set_mark(mark->second.mark());
    violation.set_mark_comment(mark->second.comment());
  }
  return absl::OkStatus();
}

void ViolationView::AddSilences(const std::vector<v1::Silence>& active,
                                const std::string& run,
                                Violations* violations) const {
  if (active.empty()) return;
  const std::optional<RunOutline> outline = use_.registry->OutlineOf(run);
  if (!outline.has_value()) return;
  bool any = false;
  for (v1::Violation& violation : *violations) {
    // The first that covers it is the one that ends last (Silences::Active).
    const auto silence =
        std::find_if(active.begin(), active.end(), [&](const v1::Silence& one) {
          return Covers(one, violation, outline->experiment);
        });
    if (silence == active.end()) continue;
    any = true;
    violation.set_silenced_by(SilencedBy(*silence));
  }
  // Without a silenced violation the checker's leads hold, and no places of
  // rules need to be read.
  if (!any) return;
  LeadBySilences(
      [&](const v1::Violation& violation) {
        return use_.places->Of(violation, outline->check_set);
      },
      violations);
}

}  // namespace traincheck::server
