// Violations: `violations list|show|watch` and the blocks that `run` prints
// while a training goes on.
#ifndef TRAINCHECK_CTL_RENDER_VIOLATION_H_
#define TRAINCHECK_CTL_RENDER_VIOLATION_H_

#include <string>
#include <vector>

#include "ctl/render/incident.h"
#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {id, run, attempt, invariant_id, relation, text, grade, first_step,
// last_step, count, ranks, apis, variables, sites, status, incident,
// first_seen, seen, headline, cause, incident_grade, rung, mark, mark_comment,
// silenced_by, basis}
Json ViolationRowJson(const v1::Violation& violation);

// The row and {expected, written_at, called_from, evidence, why, fix,
// reference}. written_at: of the sites those where it was made wrong; the
// others are those where that was seen.
Json ViolationDetailJson(const v1::Violation& violation);

// The row of the lead and {follows, beside}: rows of what follows from it and
// of what was found beside it, each after what it follows from (its cause).
Json IncidentJson(const Incident& incident);
// Adds {follows, beside}.
void AddOthers(const Incident& incident, Json* json);

// By incidents, the lead first and below it the others.
std::string ViolationsTable(const std::vector<v1::Violation>& violations);

// What is known of a violation from elsewhere, as lines that stand in their
// place within its text; "": nothing.
struct ShownBeside {
  std::string closer_look;
  std::string how_sure;
  std::string feedback;
};

std::string ViolationDetailText(const v1::Violation& violation,
                                const ShownBeside& beside = {});

// The lead in detail with the other violations of the incident.
std::string IncidentText(const Incident& incident,
                         const ShownBeside& beside = {});

// "Since step 12 replicas hold different parameters (ranks 0,1, train.py:41)",
// without a newline.
std::string ViolationHeadline(const v1::Violation& violation);

// A line of `violations watch`: time, id, run and grade before the headline,
// behind it why it is shown and how to mute it.
std::string ViolationLine(const v1::Violation& violation);

// What `run` prints: the headline behind "traincheck: VIOLATION " (or "advice
// ") and indented lines: where, what was expected and seen, why, what to do.
std::string ViolationBlock(const v1::Violation& violation);

// The block of the lead with the other violations of the incident.
std::string IncidentBlock(const Incident& incident);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_VIOLATION_H_
