// NVIDIA's driver, as far as digests need it: the library that torch has loaded
// into this process. Nothing of CUDA is needed to build or link, the driver is
// never loaded or initialised here, and only functions are used that neither
// wait nor break a capture of the user's.
//
// Threads: those of the driver.
#ifndef TRAINCHECK_AGENT_DEVICE_CUDA_DRIVER_H_
#define TRAINCHECK_AGENT_DEVICE_CUDA_DRIVER_H_

#include <cstddef>
#include <string>

#include "agent/device/digest_layout.h"

namespace traincheck::agent {

struct CudaDriver {
  using Result = int;
  using Device = int;
  using Handle = void*;  // of a context, module, function, stream

  // Errors that are answers.
  static constexpr Result kSuccess = 0;
  static constexpr Result kStreamCaptureImplicit = 906;

  static constexpr int kMultiprocessors = 16;  // attribute of a device
  static constexpr int kRelaxedCapture = 2;    // mode of a thread
  static constexpr unsigned kPortableMapped = 3;

  Result (*GetErrorName)(Result, const char**);
  Result (*DeviceGet)(Device*, int ordinal);
  Result (*DeviceGetAttribute)(int*, int attribute, Device);
  Result (*DevicePrimaryCtxGetState)(Device, unsigned* flags, int* active);
  Result (*DevicePrimaryCtxRetain)(Handle* context, Device);
  Result (*CtxGetCurrent)(Handle*);
  Result (*CtxPushCurrent)(Handle);
  Result (*CtxPopCurrent)(Handle*);
  Result (*ThreadExchangeStreamCaptureMode)(int*);
  Result (*StreamIsCapturing)(Handle stream, int* status);
  Result (*ModuleLoadDataEx)(Handle* module, const void* image,
                             unsigned options, int*, void**);
  Result (*ModuleGetFunction)(Handle* function, Handle module, const char*);
  Result (*OccupancyMaxActiveBlocksPerMultiprocessor)(int*, Handle function,
                                                      int threads, size_t);
  Result (*MemAlloc)(DeviceWord*, size_t);
  Result (*MemHostAlloc)(void**, size_t, unsigned flags);
  Result (*MemHostGetDevicePointer)(DeviceWord*, void*, unsigned flags);
  Result (*MemsetD8Async)(DeviceWord, unsigned char, size_t, Handle stream);
  Result (*MemcpyHtoDAsync)(DeviceWord, const void*, size_t, Handle stream);
  Result (*LaunchKernel)(Handle function, unsigned grid_x, unsigned grid_y,
                         unsigned grid_z, unsigned block_x, unsigned block_y,
                         unsigned block_z, unsigned shared_bytes, Handle stream,
                         void** parameters, void** extra);

  // Finds a function of a library that is loaded already, and loads none.
  using FindLoaded = void* (*)(const char* library, const char* name);

  // "": all are there; else what is not.
  std::string Bind(FindLoaded find_loaded);

  // "700 CUDA_ERROR_ILLEGAL_ADDRESS".
  std::string NameOf(Result error) const;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_DEVICE_CUDA_DRIVER_H_
