// The stream on which the program works on a CUDA device now.
//
// Threads: GIL held; of the calling thread.
#ifndef TRAINCHECK_AGENT_TORCH_CUDA_STREAM_H_
#define TRAINCHECK_AGENT_TORCH_CUDA_STREAM_H_

#include <optional>

namespace traincheck::agent {

// A CUstream; null is the default stream. None: this torch does not say. About
// 0.2 us.
std::optional<void*> CurrentCudaStream(int device);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_CUDA_STREAM_H_
