#include "agent/device/cuda_driver.h"

#include <dlfcn.h>

namespace traincheck::agent {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function,
          std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr && missing->empty()) {
    *missing = std::string("the driver has no ") + name;
  }
  return *function != nullptr;
}

}  // namespace

std::string CudaDriver::Bind() {
  // Never loads it: what torch has loaded or nothing.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return "no CUDA driver is loaded";
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    Find(library, name, function, &missing);
  };
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
