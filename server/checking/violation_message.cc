#include "server/checking/violation_message.h"

namespace traincheck::server {

// Subjects are left out: incidents are found by them, and nobody is shown them.
// Revision and first sight are added by the board, marks and silences by the
// view.
v1::Violation ToApi(const Violation& violation) {
  v1::Violation api;
  api.set_id(violation.id);
  api.set_run(violation.run);
  api.set_attempt(violation.attempt);
  api.set_invariant_id(violation.invariant_id);
  api.set_relation(violation.relation);
  api.set_text(violation.text);
  if (violation.first_step) api.set_first_step(*violation.first_step);
  if (violation.last_step) api.set_last_step(*violation.last_step);
  api.set_count(violation.count);
  api.mutable_ranks()->Assign(violation.ranks.begin(), violation.ranks.end());
  api.mutable_apis()->Assign(violation.apis.begin(), violation.apis.end());
  api.mutable_variables()->Assign(violation.variables.begin(),
                                  violation.variables.end());
  api.mutable_sites()->Assign(violation.sites.begin(), violation.sites.end());
  api.mutable_callers()->Assign(violation.callers.begin(),
                                violation.callers.end());
  // The words are part of the API and of what is stored, as are those of the
  // grades below.
  api.set_status(violation.open ? "open" : "ended");
  api.set_expected(violation.expected);
  api.set_seen(violation.seen);
  api.mutable_evidence()->Assign(violation.evidence.begin(),
                                 violation.evidence.end());
  api.set_why(violation.notes.why);
  api.set_fix(violation.notes.fix);
  api.set_reference(violation.notes.reference);
  api.set_grade(violation.notes.advice ? "advice" : "alert");
  api.set_headline(violation.headline);
  api.set_incident(violation.grouped.incident);
  api.set_cause(violation.grouped.cause);
  api.set_incident_grade(violation.grouped.alerts ? "alert" : "advice");
  api.set_rung(NameOf(violation.place.rung));
  api.set_basis(violation.basis);
  return api;
}

}  // namespace traincheck::server
