// Records of content that is no variable's tensor: states that are bytes
// (generators, indices of a batch) and entries of checkpoints, on the calling
// thread's ring, nothing if recording is off; and digests without a record.
//
// Threads: GIL held; released while large tensors are digested.
#ifndef TRAINCHECK_AGENT_CAPTURE_CONTENT_H_
#define TRAINCHECK_AGENT_CAPTURE_CONTENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/cpython/python_api.h"
#include "proto/record_format.h"

namespace traincheck::agent {

// A State record of `variable` (0: none) with the digest that a tensor of these
// bytes and this element type ("torch.uint8") would have.
void RecordBytes(StatePoint point, uint32_t variable, std::string_view bytes,
                 std::string_view dtype);

enum class DigestsRead { kAll, kNotAll, kNoSequence };
// Adds the digest of each tensor, eight bytes, little-endian. kNotAll: one
// cannot be read here. kNoSequence: `tensors` is none, and an exception says
// so.
DigestsRead ReadDigests(PyObject* tensors, std::string* digests);

// What a checkpoint function took or gave.
struct CheckpointContent {
  std::vector<std::string> keys;
  // As many as keys: the live variable in whose storage the entry lies; 0:
  // none.
  std::vector<uint32_t> variables;
  uint64_t left_out = 0;  // further entries
};
// One record an entry: digest, type and shape of a tensor, the value of a
// number, else the key alone. False: `values` is no sequence of that length,
// and an exception says so.
bool RecordCheckpoint(StatePoint point, const CheckpointContent& content,
                      PyObject* values);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CONTENT_H_
