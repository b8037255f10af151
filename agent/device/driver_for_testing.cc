// A CUDA driver without a device: a library of the driver's name whose devices
// are this process's memory. Streams queue what they are given and do it when a
// test says so. The kernel is the emulated one, over the memory as it is then.
#include "agent/device/driver_for_testing.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/device/emulated_kernel_for_testing.h"

namespace traincheck::agent {
namespace {

using Result = int;
constexpr Result kInvalidValue = 1;
constexpr Result kInvalidContext = 201;
constexpr Result kNotFound = 500;
constexpr Result kCaptureUnsupported = 900;
constexpr Result kCaptureImplicit = 906;
constexpr int kDevices = 2;
constexpr int kModeRelaxed = 2;

struct Context {
  bool active = false;
};

// Results of a kernel that ran, and after how many calls the host sees them.
struct Unseen {
  DigestLaunch launch;
  std::vector<DigestWords> sums;
  DigestDone done;
  int calls;
};

struct Driver {
  Context contexts[kDevices];
  Context other;
  std::map<void*, std::deque<std::function<void()>>> streams;
  std::deque<Unseen> unseen;
  int calls_until_seen = -1;
  std::string failing;
  Result error = 0;
  std::map<void*, bool> capturing;
  int hurt = 0;
  int launches = 0;
  int uploads = 0;
  int allocations = 0;
  std::vector<std::unique_ptr<char[]>> memory;
};

// Made before main(), by StartFromEnvironment, and never destroyed.
Driver& Get() {
  static auto* const driver = new Driver;
  return *driver;
}

thread_local std::vector<Context*> t_contexts;
thread_local int t_mode = 0;

void See(const Unseen& results) {
  std::memcpy(results.launch.host_sums, results.sums.data(),
              results.sums.size() * sizeof(DigestWords));
  results.launch.host_done->device_ns = results.done.device_ns;
  results.launch.host_done->launch = results.done.launch;
}

Result Enter(const char* function) {
  for (Unseen& results : Get().unseen) --results.calls;
  while (!Get().unseen.empty() && Get().unseen.front().calls <= 0) {
    See(Get().unseen.front());
    Get().unseen.pop_front();
  }
  const bool fails = Get().failing == "*" || Get().failing == function;
  return fails ? Get().error : 0;
}

// Of functions that are forbidden while any stream captures.
Result EnterUnsafe(const char* function) {
  if (t_mode != kModeRelaxed) {
    for (const auto& [stream, on] : Get().capturing) {
      if (!on) continue;
      ++Get().hurt;
      return kCaptureUnsupported;
    }
  }
  return Enter(function);
}

Result Queue(const char* function, void* stream, std::function<void()> work) {
  if (const Result error = Enter(function)) return error;
  if (t_contexts.empty()) return kInvalidContext;
  if (Get().capturing[stream]) ++Get().hurt;
  if (Get().calls_until_seen >= 0) {
    work();
  } else {
    Get().streams[stream].push_back(std::move(work));
  }
  return 0;
}

// Kept as long as the driver, with the content of whoever had it before.
void* Allocate(size_t bytes) {
  Get().memory.push_back(std::make_unique<char[]>(bytes));
  std::memset(Get().memory.back().get(), 0xa5, bytes);
  return Get().memory.back().get();
}

void Run(const DigestLaunch& launch, unsigned blocks) {
  constexpr DeviceWord kDurationNs = 50'000;
  if (Get().calls_until_seen < 0) {
    return RunEmulatedKernel(launch, blocks, kDurationNs);
  }
  Unseen results = {launch,
                    std::vector<DigestWords>(launch.count),
                    {},
                    Get().calls_until_seen};
  DigestLaunch aside = launch;
  aside.host_sums = results.sums.data();
  aside.host_done = &results.done;
  RunEmulatedKernel(aside, blocks, kDurationNs);
  if (results.calls == 0) return See(results);
  Get().unseen.push_back(std::move(results));
}

}  // namespace
}  // namespace traincheck::agent

using traincheck::agent::DeviceWord;
using traincheck::agent::DigestLaunch;
namespace fake = traincheck::agent;

namespace {

// In a program that knows nothing of tests: DRIVER_FOR_TESTING=N makes its
// memory device 0, as after testing_run_at_once(N).
__attribute__((constructor)) void StartFromEnvironment() {
  const char* calls = std::getenv("DRIVER_FOR_TESTING");
  if (calls == nullptr) return;
  testing_initialise(0);
  testing_run_at_once(std::atoi(calls));
}

}  // namespace

extern "C" {

int traincheck_testing_cpu_is_device() {
  return std::getenv("DRIVER_FOR_TESTING") != nullptr;
}

void testing_initialise(int device) {
  fake::Get().contexts[device].active = true;
  fake::t_contexts.assign(1, &fake::Get().contexts[device]);
}

void testing_forget(int device) { fake::Get().contexts[device].active = false; }

void testing_set_other_context(int on) {
  fake::t_contexts.clear();
  if (on != 0) fake::t_contexts.push_back(&fake::Get().other);
}

void testing_write(void* stream, void* to, unsigned char value,
                   unsigned long long bytes) {
  fake::Get().streams[stream].push_back([=] { std::memset(to, value, bytes); });
}

int testing_run(void* stream, int count) {
  auto& work = fake::Get().streams[stream];
  int done = 0;
  for (; done < count && !work.empty(); ++done) {
    work.front()();
    work.pop_front();
  }
  return done;
}

void testing_drop() {
  fake::Get().streams.clear();
  fake::Get().unseen.clear();
}

void testing_run_at_once(int calls_until_seen) {
  fake::Get().calls_until_seen = calls_until_seen;
}

void testing_fail(const char* function, int error) {
  fake::Get().failing = error == 0 ? "" : function;
  fake::Get().error = error;
}

void testing_capture(void* stream, int on) {
  fake::Get().capturing[stream] = on != 0;
}

int testing_captures_hurt() { return fake::Get().hurt; }
int testing_launches() { return fake::Get().launches; }
int testing_uploads() { return fake::Get().uploads; }
int testing_allocations() { return fake::Get().allocations; }

int cuInit(unsigned) { std::abort(); }  // nobody asked the agent to

int cuGetErrorName(int error, const char** name) {
  *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
  return *name != nullptr ? 0 : fake::kInvalidValue;
}

int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= fake::kDevices) return fake::kInvalidValue;
  *device = ordinal;
  return fake::Enter("cuDeviceGet");
}

int cuDeviceGetAttribute(int* value, int, int) {
  *value = 4;  // multiprocessors
  return fake::Enter("cuDeviceGetAttribute");
}

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = fake::Get().contexts[device].active;
  return fake::Enter("cuDevicePrimaryCtxGetState");
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &fake::Get().contexts[device];
  return fake::Enter("cuDevicePrimaryCtxRetain");
}

int cuCtxGetCurrent(void** context) {
  *context = fake::t_contexts.empty() ? nullptr : fake::t_contexts.back();
  return 0;
}

int cuCtxPushCurrent_v2(void* context) {
  fake::t_contexts.push_back(static_cast<fake::Context*>(context));
  return 0;
}

int cuCtxPopCurrent_v2(void** context) {
  if (fake::t_contexts.empty()) return fake::kInvalidContext;
  *context = fake::t_contexts.back();
  fake::t_contexts.pop_back();
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, fake::t_mode);
  return 0;
}

int cuStreamIsCapturing(void* stream, int* status) {
  if (const int error = fake::Enter("cuStreamIsCapturing")) return error;
  if (fake::t_contexts.empty()) return fake::kInvalidContext;
  *status = fake::Get().capturing[stream] ? 1 : 0;
  if (*status != 0 || stream != nullptr) return 0;
  for (const auto& [other, on] : fake::Get().capturing) {
    if (on) return fake::kCaptureImplicit;
  }
  return 0;
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*,
                       void**) {
  if (const int error = fake::EnterUnsafe("cuModuleLoadDataEx")) return error;
  const char* text = static_cast<const char*>(image);
  if (std::strstr(text, ".version ") == nullptr) return fake::kInvalidValue;
  *module = const_cast<void*>(image);
  return 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  const std::string entry = std::string(".entry ") + name + "(";
  if (std::strstr(static_cast<const char*>(module), entry.c_str()) == nullptr) {
    return fake::kNotFound;
  }
  *function = module;
  return fake::Enter("cuModuleGetFunction");
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int,
                                                size_t) {
  *blocks = 2;
  return fake::Enter("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

int cuMemAlloc_v2(DeviceWord* address, size_t bytes) {
  if (const int error = fake::EnterUnsafe("cuMemAlloc_v2")) return error;
  ++fake::Get().allocations;
  *address = reinterpret_cast<DeviceWord>(fake::Allocate(bytes));
  return 0;
}

int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const int error = fake::EnterUnsafe("cuMemHostAlloc")) return error;
  *memory = fake::Allocate(bytes);
  return 0;
}

int cuMemHostGetDevicePointer_v2(DeviceWord* address, void* memory, unsigned) {
  *address = reinterpret_cast<DeviceWord>(memory);
  return fake::Enter("cuMemHostGetDevicePointer_v2");
}

int cuMemsetD8Async(DeviceWord to, unsigned char value, size_t bytes,
                    void* stream) {
  return fake::Queue("cuMemsetD8Async", stream, [=] {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
  });
}

int cuMemcpyHtoDAsync_v2(DeviceWord to, const void* from, size_t bytes,
                         void* stream) {
  ++fake::Get().uploads;
  // The memory is pinned: it is read when the copy runs.
  return fake::Queue("cuMemcpyHtoDAsync_v2", stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  });
}

// size: the parameters are those of the real one.
int cuLaunchKernel(void*, unsigned blocks, unsigned, unsigned, unsigned threads,
                   unsigned, unsigned, unsigned, void* stream,
                   void** parameters, void**) {
  if (blocks == 0 || threads != fake::kBlockThreads) {
    return fake::kInvalidValue;
  }
  // Parameters are copied at the launch.
  const DigestLaunch launch = *static_cast<DigestLaunch*>(parameters[0]);
  ++fake::Get().launches;
  return fake::Queue("cuLaunchKernel", stream,
                     [=] { fake::Run(launch, blocks); });
}
}
