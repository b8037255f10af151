// The kernel, run by this process over its own memory.
//
// Threads: one launch of the same sums at a time, as on a device.
#ifndef TRAINCHECK_AGENT_DEVICE_EMULATED_KERNEL_FOR_TESTING_H_
#define TRAINCHECK_AGENT_DEVICE_EMULATED_KERNEL_FOR_TESTING_H_

#include "agent/device/digest_layout.h"

namespace traincheck::agent {

// All threads of a grid of `blocks` blocks. It ends `duration_ns` after it
// began.
void RunEmulatedKernel(const DigestLaunch& launch, unsigned blocks,
                       DeviceWord duration_ns);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_DEVICE_EMULATED_KERNEL_FOR_TESTING_H_
