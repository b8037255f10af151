// TrainCheck's relations: static_check_all of each, precondition first
// (semantics, 3.1 to 3.7). A line is checked up to the first violation.
//
// Threads: pure but for what is written into records (trace_record.h).
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_RELATIONS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_RELATIONS_H_

#include "invariants/traincheck/conformance/checked_line.h"
#include "invariants/traincheck/conformance/conformance_trace.h"
#include "invariants/traincheck/conformance/line_finding.h"

namespace traincheck {

// APIContainRelation (3.2).
LineResult CheckContain(const CheckedLine& line, ConformanceTrace* trace);
// ConsistencyRelation (3.1).
LineResult CheckConsistency(const CheckedLine& line, ConformanceTrace* trace);
// ConsistentOutputRelation (3.4).
LineResult CheckOutput(const CheckedLine& line, ConformanceTrace* trace);
// ConsistentInputOutputRelation (3.5).
LineResult CheckInputOutput(const CheckedLine& line, ConformanceTrace* trace);
// ThresholdRelation (3.6).
LineResult CheckThreshold(const CheckedLine& line, ConformanceTrace* trace);
// FunctionCoverRelation and FunctionLeadRelation (3.3).
LineResult CheckCover(const CheckedLine& line, ConformanceTrace* trace);
LineResult CheckLead(const CheckedLine& line, ConformanceTrace* trace);
// DistinctArgumentRelation (3.7).
LineResult CheckDistinct(const CheckedLine& line, ConformanceTrace* trace);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_RELATIONS_H_
