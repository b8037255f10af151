// Records of variables' content at state points: one State record a variable
// and, on plan, Statistics and RowDigests of the same content, read in the same
// pass. Digests of tensors on a device follow (device_states.h), without
// statistics and rows. On the calling thread's ring; nothing if recording is
// off.
//
// Threads: GIL held; RecordStates releases it while it reads large tensors.
#ifndef TRAINCHECK_AGENT_CAPTURE_STATES_H_
#define TRAINCHECK_AGENT_CAPTURE_STATES_H_

#include <cstdint>
#include <vector>

#include "agent/cpython/python_api.h"
#include "agent/torch/tensor_view.h"
#include "proto/record_format.h"

namespace traincheck::agent {

// What RecordStates reads of each tensor, added up. Statistics and rows tell
// more of what is digested, so each stands beside its digest's bit.
inline constexpr int kStateData = 1;
inline constexpr int kStateGrad = 2;
inline constexpr int kStateDataStatistics = 4;
inline constexpr int kStateGradStatistics = 8;
inline constexpr int kStateDataRows = 16;
inline constexpr int kStateGradRows = 32;

// A tensor of more has no row digests: 8 MiB of records would be too many.
inline constexpr uint64_t kMaxRows = 1u << 20;

// Of a tensor's bytes, of a DTensor's local shard; rows up to `max_rows`. None:
// they cannot be read here. Always read, unlike what RecordStates records
// (unwritten_contents.h). REQUIRES: a TorchApi::WithoutOverrides lives.
std::optional<ContentSummary> SummaryOf(PyObject* tensor,
                                        ContentWanted wanted = {},
                                        uint64_t max_rows = kMaxRows);

// The records of each variable; those with number 0 (not defined) are left
// out. False: `tensors` is no sequence of that length, and an exception says
// so.
bool RecordStates(StatePoint point, int what,
                  const std::vector<uint32_t>& variables, PyObject* tensors);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_STATES_H_
