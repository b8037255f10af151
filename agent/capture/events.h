// Records that are neither calls nor states: scalars, marks, contexts, places
// and closed steps. On the calling thread's ring; nothing if recording is off.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_EVENTS_H_
#define TRAINCHECK_AGENT_CAPTURE_EVENTS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/cpython/python_api.h"
#include "proto/record_format.h"

namespace traincheck::agent {

void RecordScalar(uint32_t object, StatePoint point, uint16_t group,
                  const std::string& name, double value);
void RecordMark(MarkKind kind, uint32_t object, uint64_t value);
// The process ends by this exception.
void RecordUncleanExit(PyObject* exception);
// `arguments`: a dict of what the context was made with, or null. Texts in it
// are told.
void RecordContext(bool enter, const std::string& name, PyObject* arguments);
// `start` is the nonce of its start; "": it has none.
void RecordPlace(const PlaceRecord& place, std::string_view start);
// The innermost open call is a collective of this group.
void RecordCollective(uint32_t group, uint64_t sequence);

// From here on this is recorded; a mark says so where it changes.
void SetCaptureMode(CaptureMode mode);

// Events of the step rule (proto/step_rule.h). Where one closes the step, a
// mark and a ClockSync follow. True: it closed.
bool StepOptimizer(uint32_t optimizer);
void StepOptimizerMade();
bool StepBatchFetched(uint32_t loader);
bool StepIteratorEnd(uint32_t loader);
bool StepGradClear();
bool StepTrainingForward();
void StepBackward();
bool StepUser();
bool StepEnd();
// The process ends: the steps of all its threads.
bool StepExit();

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_EVENTS_H_
