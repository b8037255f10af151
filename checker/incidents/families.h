// What is said of the violations of a rule that has no words of its own (those
// of built-in rules stand beside them, invariants/library): where it stands on
// the ladder, a headline, why the training goes on as if nothing were wrong,
// and what to do. One row a family.
//
// Threads: constant table, pure functions.
#ifndef TRAINCHECK_CHECKER_INCIDENTS_FAMILIES_H_
#define TRAINCHECK_CHECKER_INCIDENTS_FAMILIES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "checker/incidents/ladder.h"
#include "invariants/rules/rule.h"

namespace traincheck {

// Violation::basis of the daemon's own rules.
inline constexpr char kBuiltInBasis[] = "built-in rule";

struct Family {
  // Rules of this relation whose value at `path` of their parameters is
  // `value`; path "": whatever their parameters.
  const char* relation;
  const char* path;
  const char* value;
  Place place;
  // A clause after "Since step 5 ". {seen}: the finding's; {call}: the class
  // and method of its first call.
  const char* headline;
  const char* why;
  const char* fix;
  // Of these, those with windows of this kind; "": of any.
  const char* window = "";
};

// The first that fits a rule is its own.
absl::Span<const Family> Families();

// Never fails: the last row is for rules of imported files.
const Family& FamilyOf(const Rule& rule);

// Of the rule's fact if it is about one, else its family's.
Place PlaceOf(const Rule& rule);

// Characters that a line has room for after "Since step 5 ".
inline constexpr size_t kMostOfHeadline = 95;

// The clause for one finding, at most that long: what was seen is cut after a
// clause where it is longer.
std::string HeadlineOf(const Family& family, const std::string& seen,
                       const std::vector<std::string>& apis);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_INCIDENTS_FAMILIES_H_
