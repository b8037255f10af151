// Records that are no calls: states of variables, scalars, marks, contexts,
// places and closed steps. On the calling thread's ring; nothing if recording
// is off.
//
// Threads: GIL held; RecordStates releases it while it digests large tensors.
#ifndef TRAINCHECK_AGENT_CAPTURE_EVENTS_H_
#define TRAINCHECK_AGENT_CAPTURE_EVENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/capture/python_api.h"
#include "agent/torch/tensor_view.h"
#include "proto/record_format.h"

namespace traincheck {

// What RecordStates digests of each tensor.
inline constexpr int kStateData = 1;
inline constexpr int kStateGrad = 2;

// Of a tensor's bytes, of a DTensor's local shard. None: they cannot be read
// here. REQUIRES: a TorchApi::WithoutOverrides lives.
std::optional<ContentDigest> DigestOf(PyObject* tensor);

// One record a variable; those with number 0 (not defined) are left out.
// False: `tensors` is no sequence of that length, and an exception says so.
bool RecordStates(StatePoint point, int what,
                  const std::vector<uint32_t>& variables, PyObject* tensors);

void RecordScalar(uint32_t object, StatePoint point, uint16_t group,
                  const std::string& name, double value);
void RecordMark(MarkKind kind, uint32_t object, uint64_t value);
void RecordContext(bool enter, const std::string& name);
void RecordPlace(const PlaceRecord& place);
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

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_CAPTURE_EVENTS_H_
