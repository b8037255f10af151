// What digest_kernel.cu asks of a device, for a C++ compiler: loads of the
// processor, which a sanitizer sees, with the alignment that a device demands.
// Lanes of a warp run one after the other, so each adds its own part.
//
// Only for the source that includes the kernel.
#ifndef TRAINCHECK_AGENT_DEVICE_KERNEL_SHIM_FOR_TESTING_H_
#define TRAINCHECK_AGENT_DEVICE_KERNEL_SHIM_FOR_TESTING_H_

#include <cstdlib>

#include "agent/device/digest_layout.h"

#define TRAINCHECK_DEVICE inline
#define TRAINCHECK_DEVICE_CALL inline

namespace traincheck::agent {
namespace {

struct WordPair {
  DeviceWord first;
  DeviceWord second;
};

// A device stops the program at a load that is not aligned.
inline void CheckAligned(const unsigned char* at, unsigned bytes) {
  if (reinterpret_cast<DeviceWord>(at) % bytes != 0) std::abort();
}

inline DeviceWord LoadWord(const unsigned char* at) {
  CheckAligned(at, sizeof(DeviceWord));
  return *reinterpret_cast<const DeviceWord*>(at);
}

inline WordPair LoadPair(const unsigned char* at) {
  CheckAligned(at, sizeof(WordPair));
  return {LoadWord(at), LoadWord(at + sizeof(DeviceWord))};
}

inline void AddWarp(DigestWords* to, unsigned, DigestWords part) {
  to->sum += part.sum;
  to->flags |= part.flags;
}

inline DeviceWord LoadShared(const DeviceWord* at) { return *at; }

}  // namespace
}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_DEVICE_KERNEL_SHIM_FOR_TESTING_H_
