// Which violations of a run have one cause, and which of them is it.
//
// A pure function of the violations as they are now: it does not matter in
// which order they were found, and a check that was restored finds the same.
//
// Violations of rules on what is right or wrong join in one incident if
//  - they begin within one step of each other and share a rank or a subject (an
//    optimizer, a process group, a call), or
//  - the later one begins while the earlier one lasts, they share a variable,
//    and the earlier one stands lower on the ladder or the later is advice.
//    Common subjects do not do here: nearly all that ever breaks in a training
//    is about its only optimizer; or
//  - the author of one rule says that it brings the other, as below.
// Violations of rules on the program's structure (ladder.h) join in the same
// way; all of them then go to the incident that begins within one step of them,
// or to an alert that lasts while they do, if there is any.
//
// To join is not to be explained: people look at what began together together,
// but two errors of one script begin in its first step, too. One violation
// explains another if it stands lower on the ladder, began no later, neither is
// of structure, and
//  - they name a common variable, or
//  - one of them names no variable, and they share a subject and a rank, or
//  - one of them names no variable, the other is about what calls return, ranks
//    exchange, gradients or updates, and both began in one step, which is not
//    one of the first two: there everything begins; or
//  - the author of its rule says that this error breaks the other's rule too,
//    they share a rank, and they do not name different variables. It does not
//    matter then in which step they begin, as long as the first one lasts. What
//    an author says comes before what the records show.
//
// Threads: pure function.
#ifndef TRAINCHECK_CHECKER_INCIDENTS_INCIDENTS_H_
#define TRAINCHECK_CHECKER_INCIDENTS_INCIDENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checker/incidents/ladder.h"

namespace traincheck {

// What joins a violation to others.
struct IncidentPart {
  std::string id;  // of the violation
  uint32_t attempt = 0;
  // nullopt: before the first step, or not known.
  std::optional<int64_t> first_step;
  std::optional<int64_t> last_step;
  std::vector<int32_t> ranks;
  std::vector<std::string> variables;
  std::vector<std::string> subjects;  // invariants/rules/subjects.h
  Place place;
  bool advice = false;
  bool learned = false;  // it has no author who says what is wrong
  // Of its rule, as its author wrote it; "": it has none.
  std::string headline;
  std::vector<std::string> brings;  // invariants/rules/rule_notes.h
};

// What a violation is in its incident.
struct IncidentRole {
  size_t lead = 0;  // the violation that no other explains; its own: it leads
  // What it follows from: of the violations that explain it the nearest one.
  // The lead's is the lead. nullopt: nothing shows that it follows from any; it
  // began with them, and may be an error of its own.
  std::optional<size_t> cause;
  // Some violation of the incident is an alert.
  bool alert = false;
};

// As many roles as there are parts, in their order.
std::vector<IncidentRole> FindIncidents(const std::vector<IncidentPart>& parts);

// Which of these leads where they alone are looked at, by the order in which
// FindIncidents chooses. REQUIRES: there is one.
size_t LeadOf(const std::vector<IncidentPart>& parts);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_INCIDENTS_INCIDENTS_H_
