// CallReturns: a call that waits for others comes back.
//
//   {"seconds": 60, "medians": 5, "known_from": 20}
//   {"seconds": 10, "medians": 5, "known_from": 20, "deadlock": true}
//
// Calls that wait are collectives, backwards, training forwards, optimizer
// steps and the next batch of a loader. One is *late* when nothing was recorded
// on its thread for `seconds` since it began, and not for `medians` times the
// median of its line, once this line has made `known_from` calls.
//
// Without `deadlock` each late call breaks the rule, on the ranks that are to
// make the same one: a collective of a group by its number, a backward, forward
// or step of a training on several ranks by its number in the process.
//
// With it only what cannot resolve by itself does: no member has come back from
// a collective that all of them have begun; or every rank of the training has
// ended or is late in such a call, and some member of each of these calls has
// not begun it. A rank that still works (it saves, it
// evaluates, it compiles) is waited for: no deadlock. A line that is not known
// yet counts from 60 seconds on (first calls compile).
//
// Time passes by the records of a process and by what its relay says while it
// records nothing (StoredBatch::quiet_us): times of two machines are never
// compared. Verdicts are for steps: pass where what waited came back in time,
// unknown where records are missing.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_CALL_RETURNS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_CALL_RETURNS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* CallReturns();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_CALL_RETURNS_H_
