// Values of floating-point types of 8 bits and less.
//
// Threads: pure functions.
#ifndef TRAINCHECK_AGENT_TORCH_SMALL_FLOATS_H_
#define TRAINCHECK_AGENT_TORCH_SMALL_FLOATS_H_

#include <cstdint>
#include <vector>

#include "proto/torch_types.h"

namespace traincheck::agent {

// One of torch's float8 and float4 types?
bool IsSmallFloat(Dtype dtype);

// The values in a byte: one, two for a pair of 4-bit floats.
std::vector<double> SmallFloats(Dtype dtype, uint8_t byte);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_SMALL_FLOATS_H_
