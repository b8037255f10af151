// Digests of tensors where they lie, in the memory of CUDA devices: a launch of
// the kernel on the stream on which the program works, so that it reads what
// the program's own kernels before it have left and those behind it have not
// touched yet. Nothing here waits: results are polled, and a launch that finds
// no free slot is refused.
//
// After the first error of the driver it stays off for the life of the process:
// then the program has other worries, and its results never come. A forked
// child cannot use its parent's devices and is off as well.
//
// Threads: externally synchronised (the GIL).
//
//   DigestTables tables;  // of tensors of one device
//   const auto begun = digester.Begin(device, stream, tables);
//   ...
//   digester.Poll([&](const DeviceDigester::Result& result) {...});
#ifndef TRAINCHECK_AGENT_DEVICE_DEVICE_DIGESTER_H_
#define TRAINCHECK_AGENT_DEVICE_DEVICE_DIGESTER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/device/cuda_driver.h"
#include "agent/device/digest_slots.h"
#include "agent/device/digest_tables.h"

namespace traincheck::agent {

class DeviceDigester {
 public:
  enum class Refused {
    kNo,
    kOff,        // see off_reason()
    kCapturing,  // the stream records a graph: nothing is computed now
    kBehind,     // the device has not finished what was begun before
  };
  struct Begun {
    Refused refused = Refused::kNo;
    uint64_t launch = 0;  // its number; rises from 1
  };
  struct Result {
    uint64_t launch = 0;
    const DigestWords* words = nullptr;  // one for each item, while it is taken
    unsigned count = 0;
    uint64_t device_ns = 0;              // for which the kernel ran
    const DeviceWord* copies = nullptr;  // as the tables count them
  };

  // `image`: the kernel as PTX text; must outlive this. `find_loaded` finds the
  // driver.
  DeviceDigester(const char* image, CudaDriver::FindLoaded find_loaded)
      : image_(image), find_loaded_(find_loaded) {}
  DeviceDigester(const DeviceDigester&) = delete;
  DeviceDigester& operator=(const DeviceDigester&) = delete;

  // The first call for a device compiles the kernel for it: 0.2 s, once for a
  // driver (it keeps the result). REQUIRES: the program has initialised the
  // device, and the tensors are its and at least one.
  Begun Begin(int device, void* stream, const DigestTables& tables);

  // Calls `take(const Result&)` for each launch that has ended since.
  template <typename Take>
  void Poll(const Take& take) {
    if (pending_ == 0) return;
    for (auto& [ordinal, device] : devices_) {
      for (DigestSlot& slot : device->slots.all()) {
        if (!IsDone(slot)) continue;
        const uint64_t launch = slot.number;
        take(Result{launch, slot.sums(), slot.items, slot.done()->device_ns,
                    slot.copies()});
        slot.number = 0;
        --pending_;
      }
    }
  }
  // Launches that have not been taken; 0 once it is off.
  unsigned pending() const { return pending_; }

  // Is the driver still well? Switches itself off where it is not.
  bool Probe();

  // "": it is on.
  const std::string& off_reason() const { return off_reason_; }
  void SwitchOff(std::string reason);

 private:
  struct Device {
    CudaDriver::Device number = 0;
    CudaDriver::Handle context = nullptr;
    CudaDriver::Handle kernel = nullptr;
    unsigned max_blocks = 0;
    DigestSlots slots;
  };
  class InContext;

  // Of a busy slot: has the kernel written its number, and all before it?
  static bool IsDone(const DigestSlot& slot) {
    if (slot.number == 0 || slot.done()->launch != slot.number) return false;
    std::atomic_thread_fence(std::memory_order_acquire);
    return true;
  }
  bool Succeeded(CudaDriver::Result result, const char* what);
  // Null: off.
  Device* Find(int ordinal);
  bool Open(int ordinal, Device* device);
  bool LoadKernel(Device* device);
  bool Upload(const DigestTables& tables, void* stream, DigestSlot* slot);
  bool Launch(const Device& device, void* stream, const DigestTables& tables,
              DigestSlot* slot);

  const char* const image_;
  const CudaDriver::FindLoaded find_loaded_;
  CudaDriver driver_ = {};
  bool bound_ = false;
  std::map<int, std::unique_ptr<Device>> devices_;
  uint64_t launches_ = 0;
  unsigned pending_ = 0;
  std::string off_reason_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_DEVICE_DEVICE_DIGESTER_H_
