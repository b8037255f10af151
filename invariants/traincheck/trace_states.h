// States of variables of a trace as State records and variable definitions.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_STATES_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_STATES_H_

#include "invariants/traincheck/conversion.h"

namespace traincheck {

class TraceStates {
 public:
  // `conversion` must outlive this object. Without calls nothing says when an
  // optimizer steps: a sampler writes at construction and after steps only.
  TraceStates(Conversion* conversion, bool has_calls)
      : conversion_(*conversion), has_calls_(has_calls) {}

  // `stepped`: an optimizer has stepped before. REQUIRES: !line.is_call().
  void Take(const TraceLine& line, const TraceThread& thread, bool stepped);

 private:
  StatePoint PointOf(const TraceThread& thread, bool is_new,
                     bool stepped) const;

  Conversion& conversion_;
  const bool has_calls_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_STATES_H_
