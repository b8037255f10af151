#include "agent/device/cuda_driver.h"

#include <type_traits>

namespace traincheck::agent {

// Finds all functions or names the first that is missing. A partial set is of
// no use: the caller then switches device digests off with this text as the
// reason.
std::string CudaDriver::Bind(FindLoaded find_loaded) {
  constexpr char kLibrary[] = "libcuda.so.1";
  // Only the presence of cuInit is asked for; it is never called, because the
  // program alone initialises the driver.
  if (find_loaded(kLibrary, "cuInit") == nullptr) {
    return "no CUDA driver is loaded";
  }
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    void* found = find_loaded(kLibrary, name);
    *function =
        reinterpret_cast<std::remove_reference_t<decltype(*function)>>(found);
    if (found == nullptr && missing.empty()) {
      missing = std::string("the driver has no ") + name;
    }
  };
  // The suffix _v2 is what cuda.h means by the plain name: drivers keep the
  // functions of their first versions under that.
  find("cuGetErrorName", &GetErrorName);
  find("cuDeviceGet", &DeviceGet);
  find("cuDeviceGetAttribute", &DeviceGetAttribute);
  find("cuDevicePrimaryCtxGetState", &DevicePrimaryCtxGetState);
  find("cuDevicePrimaryCtxRetain", &DevicePrimaryCtxRetain);
  find("cuCtxGetCurrent", &CtxGetCurrent);
  find("cuCtxPushCurrent_v2", &CtxPushCurrent);
  find("cuCtxPopCurrent_v2", &CtxPopCurrent);
  find("cuThreadExchangeStreamCaptureMode", &ThreadExchangeStreamCaptureMode);
  find("cuStreamIsCapturing", &StreamIsCapturing);
  find("cuModuleLoadDataEx", &ModuleLoadDataEx);
  find("cuModuleGetFunction", &ModuleGetFunction);
  find("cuOccupancyMaxActiveBlocksPerMultiprocessor",
       &OccupancyMaxActiveBlocksPerMultiprocessor);
  find("cuMemAlloc_v2", &MemAlloc);
  find("cuMemHostAlloc", &MemHostAlloc);
  find("cuMemHostGetDevicePointer_v2", &MemHostGetDevicePointer);
  find("cuMemsetD8Async", &MemsetD8Async);
  find("cuMemcpyHtoDAsync_v2", &MemcpyHtoDAsync);
  find("cuLaunchKernel", &LaunchKernel);
  return missing;
}

std::string CudaDriver::NameOf(Result error) const {
  const char* name = nullptr;
  const bool named = GetErrorName(error, &name) == kSuccess && name != nullptr;
  return std::to_string(error) + (named ? std::string(" ") + name : "");
}

}  // namespace traincheck::agent
