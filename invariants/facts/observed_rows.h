// Rows of facts that the agent has looked at itself: of a call, an optimizer or
// a loader.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_FACTS_OBSERVED_ROWS_H_
#define TRAINCHECK_INVARIANTS_FACTS_OBSERVED_ROWS_H_

#include <cstdint>
#include <vector>

#include "invariants/facts/fact.h"
#include "invariants/facts/observations.h"
#include "invariants/facts/process_facts.h"

namespace traincheck {

template <const char* name>
FactValue OfCall(const FactSubject& subject) {
  if (!subject.call || !Observations::Concerns(*subject.call)) return {};
  const auto found = subject.facts->observations().Find(name);
  return found ? FactValue(*found) : FactValue();
}

template <const char* name>
FactValue OfOptimizer(const FactSubject& subject) {
  const auto found =
      subject.facts->observations().Find(subject.optimizer, name);
  return found ? FactValue(*found) : FactValue();
}

template <const char* name>
FactValue OfLoader(const FactSubject& subject) {
  const auto found = subject.facts->observations().Find(subject.loader, name);
  return found ? FactValue(*found) : FactValue();
}

template <FactValue (*read)(const FactSubject&)>
bool IsSaid(const FactSubject& subject) {
  return IsKnown(read(subject));
}

// `since`: the LOOKS of sight.py with which the agent began to look at it.
template <FactValue (*read)(const FactSubject&)>
Fact ObservedRow(const char* name, FactOf of, const char* text,
                 const char* otherwise, uint32_t since) {
  return {name,
          of,
          FactType::kBool,
          FactNeed::kNone,
          text,
          otherwise,
          "where the agent did not look",
          read,
          IsSaid<read>,
          /*at_end=*/true,
          since};
}

template <const char* name>
Fact CallRow(const char* text, const char* otherwise, uint32_t since = 1) {
  return ObservedRow<OfCall<name>>(name, FactOf::kCall, text, otherwise, since);
}
template <const char* name>
Fact OptimizerRow(const char* text, const char* otherwise, uint32_t since = 1) {
  return ObservedRow<OfOptimizer<name>>(name, FactOf::kOptimizer, text,
                                        otherwise, since);
}
// Of what a loader was made with, unless it is said to blame nobody.
template <const char* name>
Fact LoaderRow(const char* text, const char* otherwise, uint32_t since = 1) {
  Fact row = ObservedRow<OfLoader<name>>(name, FactOf::kLoader, text, otherwise,
                                         since);
  row.blames = Blamed::kConstruction;
  return row;
}
// Of an optimizer that has a scheduler.
template <const char* name>
Fact ScheduleRow(const char* text, const char* otherwise, uint32_t since = 1,
                 Blamed blames = Blamed::kScheduler) {
  Fact row = OptimizerRow<name>(text, otherwise, since);
  row.blames = blames;
  return row;
}

inline Fact BlamesNobody(Fact fact) {
  fact.blames = Blamed::kNobody;
  return fact;
}

// Parts of ObservedFacts.
std::vector<Fact> ObservedLoaderFacts();
std::vector<Fact> ObservedOptimizerFacts();
std::vector<Fact> ObservedScheduleFacts();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_OBSERVED_ROWS_H_
