#include "agent/device/device_digester.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace traincheck::agent {
namespace {

constexpr char kKernelName[] = "traincheck_digest";
// A block costs time to start, so each of its warps should have work: a launch
// has one block for every eight chunks, which is one chunk a warp.
constexpr unsigned kChunksOfBlock = kBlockThreads / kWarpThreads;

}  // namespace

// Makes a device's primary context current for a scope, unless it is current
// already. The thread may have another device's context or none, and gets it
// back at the end.
class DeviceDigester::InContext {
 public:
  InContext(const CudaDriver& driver, CudaDriver::Handle context)
      : driver_(driver) {
    CudaDriver::Handle current = nullptr;
    driver_.CtxGetCurrent(&current);
    pushed_ = current != context &&
              driver_.CtxPushCurrent(context) == CudaDriver::kSuccess;
  }
  ~InContext() {
    CudaDriver::Handle popped;
    if (pushed_) driver_.CtxPopCurrent(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

// Switching off is final, and the first reason stays: later errors usually
// follow from it.
void DeviceDigester::SwitchOff(std::string reason) {
  if (!off_reason_.empty()) return;
  off_reason_ = std::move(reason);
  // Results of a context that has failed never come.
  pending_ = 0;
}

// Every call of the driver passes through here, so that the first error of any
// kind switches the digester off and names the step that failed.
bool DeviceDigester::Succeeded(CudaDriver::Result result, const char* what) {
  if (result == CudaDriver::kSuccess) return true;
  SwitchOff(std::string(what) + " failed: CUDA error " +
            driver_.NameOf(result));
  return false;
}

// Compiles the PTX for this device and finds how many blocks it runs at once.
// Compiling takes 0.2 s, once for a driver, which keeps the result.
bool DeviceDigester::LoadKernel(Device* device) {
  // Loading allocates, which would break a capture that is in progress.
  const RelaxedCapture relaxed(driver_);
  CudaDriver::Handle module = nullptr;
  int multiprocessors = 0, blocks = 0;
  if (!Succeeded(driver_.ModuleLoadDataEx(&module, image_, 0, nullptr, nullptr),
                 "loading the kernel") ||
      !Succeeded(
          driver_.ModuleGetFunction(&device->kernel, module, kKernelName),
          "loading the kernel") ||
      !Succeeded(
          driver_.DeviceGetAttribute(
              &multiprocessors, CudaDriver::kMultiprocessors, device->number),
          "asking for the device's size") ||
      !Succeeded(driver_.OccupancyMaxActiveBlocksPerMultiprocessor(
                     &blocks, device->kernel, kBlockThreads, 0),
                 "asking for the kernel's size")) {
    return false;
  }
  // As many as run at once: each warp takes further chunks in turn, so more
  // blocks would only be begun later.
  device->max_blocks =
      static_cast<unsigned>(std::max(1, multiprocessors * blocks));
  return true;
}

// Attaches to the primary context that torch has made for this device.
bool DeviceDigester::Open(int ordinal, Device* device) {
  CudaDriver::Device number = 0;
  unsigned flags = 0;
  int active = 0;
  if (!Succeeded(driver_.DeviceGet(&number, ordinal), "finding the device") ||
      !Succeeded(driver_.DevicePrimaryCtxGetState(number, &flags, &active),
                 "finding the device's context")) {
    return false;
  }
  // Retaining a context that is not there would make one: the agent never
  // initialises a device that the program does not use.
  if (active == 0) {
    SwitchOff("device " + std::to_string(ordinal) + " is not initialised");
    return false;
  }
  device->number = number;
  // The context exists, so retaining it only counts one more user. The
  // reference is never given back, since the digester's memory in the context
  // is not either.
  return Succeeded(driver_.DevicePrimaryCtxRetain(&device->context, number),
                   "finding the device's context");
}

// Null: the digester is off. A device that is not open yet is opened.
DeviceDigester::Device* DeviceDigester::Find(int ordinal) {
  if (!off_reason_.empty()) return nullptr;
  // Bound at the first use: only with a tensor on a device has the program
  // loaded the driver for certain.
  if (!bound_) {
    std::string missing = driver_.Bind(find_loaded_);
    if (!missing.empty()) {
      SwitchOff(std::move(missing));
      return nullptr;
    }
    bound_ = true;
  }
  const auto found = devices_.find(ordinal);
  if (found != devices_.end()) return found->second.get();
  auto device = std::make_unique<Device>();
  if (!Open(ordinal, device.get())) return nullptr;
  return devices_.emplace(ordinal, std::move(device)).first->second.get();
}

// Sends the tables to the device on the program's stream, before the launch
// that reads them.
bool DeviceDigester::Upload(const DigestTables& tables, void* stream,
                            DigestSlot* slot) {
  const auto& items = tables.items();
  const auto& dims = tables.dims();
  slot->items = static_cast<unsigned>(items.size());
  slot->dims = static_cast<unsigned>(dims.size());
  // The pinned copy may be overwritten now: the launch that read it has written
  // its number, otherwise the slot would not be free. The copy stays unchanged
  // until this launch has finished as well, so nobody has to wait for the
  // transfer to the device.
  std::memcpy(slot->host + slot->items_at(), items.data(),
              items.size() * sizeof items[0]);
  if (!Succeeded(
          driver_.MemcpyHtoDAsync(slot->device + slot->items_at(),
                                  slot->host + slot->items_at(),
                                  items.size() * sizeof items[0], stream),
          "copying the table")) {
    return false;
  }
  // Without strided tensors there is no table of dimensions to send.
  if (dims.empty()) return true;
  std::memcpy(slot->host + slot->dims_at(), dims.data(),
              dims.size() * sizeof dims[0]);
  return Succeeded(
      driver_.MemcpyHtoDAsync(slot->device + slot->dims_at(),
                              slot->host + slot->dims_at(),
                              dims.size() * sizeof dims[0], stream),
      "copying the table");
}

// Fills the kernel's argument and launches it. Every address in it is the
// device's view, also of the pinned memory.
bool DeviceDigester::Launch(const Device& device, void* stream,
                            const DigestTables& tables, DigestSlot* slot) {
  // Sums are zero before each launch: the last block of the one before has
  // cleared them.
  if (slot->is_new &&
      !Succeeded(driver_.MemsetD8Async(slot->device + slot->sums_at(), 0,
                                       slot->bytes() - slot->sums_at(), stream),
                 "clearing the sums")) {
    return false;
  }
  slot->is_new = false;
  // A state point has the same tensors in each step, so that most launches find
  // their tables on the device.
  if (!HasTables(*slot, tables) && !Upload(tables, stream, slot)) return false;
  // Typed pointer at an offset; the type is that of the field it is assigned
  // to.
  const auto on = [](DeviceWord base, size_t at, auto* pointer) {
    return reinterpret_cast<decltype(pointer)>(base + at);
  };
  DigestLaunch launch = {};
  launch.items = on(slot->device, slot->items_at(), launch.items);
  launch.dims = on(slot->device, slot->dims_at(), launch.dims);
  launch.sums = on(slot->device, slot->sums_at(), launch.sums);
  launch.progress = on(slot->device, slot->end_at(), launch.progress);
  launch.host_sums =
      on(slot->host_on_device, slot->sums_at(), launch.host_sums);
  // Null where nothing is copied: the kernel tests this pointer.
  if (tables.copied_words() != 0) {
    launch.host_copies =
        on(slot->host_on_device, slot->copies_at(), launch.host_copies);
  }
  launch.host_done = on(slot->host_on_device, slot->end_at(), launch.host_done);
  // The counter itself rises in Begin, once the launch has succeeded.
  launch.number = launches_ + 1;
  launch.count = slot->items;
  launch.chunks = tables.chunks();
  // At least one block, which writes the number, also where all tensors are
  // empty.
  const unsigned blocks =
      std::clamp((tables.chunks() + kChunksOfBlock - 1) / kChunksOfBlock, 1u,
                 device.max_blocks);
  void* parameters[] = {&launch};
  return Succeeded(
      driver_.LaunchKernel(device.kernel, blocks, 1, 1, kBlockThreads, 1, 1, 0,
                           stream, parameters, nullptr),
      "launching the kernel");
}

// The order matters: the capture is asked for first, because everything behind
// it (compiling, allocating, launching) would become part of the graph or break
// it.
DeviceDigester::Begun DeviceDigester::Begin(int ordinal, void* stream,
                                            const DigestTables& tables) {
  Device* device = Find(ordinal);
  if (device == nullptr) return {Refused::kOff, 0};
  const InContext in(driver_, device->context);
  int capturing = 0;
  const CudaDriver::Result asked =
      driver_.StreamIsCapturing(stream, &capturing);
  // This answer means that another stream captures, during which the default
  // stream must not be used. It is treated as a capture: nothing is computed
  // now.
  if (asked == CudaDriver::kStreamCaptureImplicit) capturing = 1;
  if (capturing != 0) return {Refused::kCapturing, 0};
  if (!Succeeded(asked, "asking for a capture")) return {Refused::kOff, 0};
  // The kernel is compiled at the first launch and not in Find: a capture must
  // have been ruled out before.
  if (device->kernel == nullptr && !LoadKernel(device)) {
    return {Refused::kOff, 0};
  }
  CudaDriver::Result error;
  DigestSlot* slot = device->slots.Take(driver_, tables, &error);
  if (!Succeeded(error, "allocating")) return {Refused::kOff, 0};
  // All slots wait for the device. The caller records the states without
  // digests rather than wait with the training.
  if (slot == nullptr) return {Refused::kBehind, 0};
  if (!Launch(*device, stream, tables, slot)) return {Refused::kOff, 0};
  // Only behind a launch that succeeded: without a number the slot is free.
  slot->number = ++launches_;
  ++pending_;
  return {Refused::kNo, slot->number};
}

// Asks whether the default stream captures, only for its side effect: the
// answer also returns errors of kernels that were launched before, the
// program's own among them, and the question waits for nothing.
bool DeviceDigester::Probe() {
  if (!off_reason_.empty()) return false;
  // Each device is asked in its own context, since the calling thread may have
  // another device's context or none.
  for (const auto& [ordinal, device] : devices_) {
    const InContext in(driver_, device->context);
    int capturing = 0;
    const CudaDriver::Result asked =
        driver_.StreamIsCapturing(nullptr, &capturing);
    if (asked != CudaDriver::kStreamCaptureImplicit &&
        !Succeeded(asked, "asking for a capture")) {
      return false;
    }
  }
  return true;
}

}  // namespace traincheck::agent
