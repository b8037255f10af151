#include "agent/device/emulated_kernel_for_testing.h"

#include "agent/device/kernel_shim_for_testing.h"
// After the shim.
#include "agent/device/digest_kernel.cu"

namespace traincheck::agent {

void RunEmulatedKernel(const DigestLaunch& launch, unsigned blocks,
                       DeviceWord duration_ns) {
  constexpr DeviceWord kBegin = 1'000;
  launch.progress->begin = ~kBegin;
  for (unsigned block = 0; block < blocks; ++block) {
    for (unsigned thread = 0; thread < kBlockThreads; ++thread) {
      SumChunks(launch, block, blocks, thread);
    }
  }
  for (unsigned thread = 0; thread < kBlockThreads; ++thread) {
    HandOver(launch, thread);
  }
  Publish(launch, kBegin + duration_ns);
  launch.host_done->launch = launch.number;
}

}  // namespace traincheck::agent
