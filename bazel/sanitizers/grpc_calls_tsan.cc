// Debian's gRPC is not instrumented, so that ThreadSanitizer does not see that
// an operation comes before its callback: what the thread that starts it has
// written would race with the thread that runs the callback, in gRPC's own
// headers, which are compiled here. The linker sends grpc_call_start_batch here
// (--wrap, in .bazelrc under tsan): starting releases, running acquires.
//
// An operation with a callback has a functor as its tag, whose first word is
// the function to run. It is exchanged for one that acquires first, until it
// has run once. Other tags are objects, whose first word points to no code.
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

// Where the code of this program lies, by the linker.
extern "C" const char __executable_start;
extern "C" const char etext;

namespace {

using Functor = grpc_completion_queue_functor;
using Function = void (*)(Functor*, int);

struct Started {
  std::mutex mutex;
  std::unordered_map<Functor*, Function> functions;
};

Started& Operations() {
  static auto* const started = new Started;
  return *started;
}

bool IsCode(const void* address) {
  return address >= &__executable_start && address < &etext;
}

void TakeBack(Functor* functor) {
  Started& started = Operations();
  const std::lock_guard<std::mutex> lock(started.mutex);
  const auto found = started.functions.find(functor);
  functor->functor_run = found->second;
  started.functions.erase(found);
}

void AcquireAndRun(Functor* functor, int success) {
  __tsan_acquire(functor);
  TakeBack(functor);
  functor->functor_run(functor, success);
}

// Null: the tag is no functor.
Functor* HandOver(void* tag) {
  if (tag == nullptr) return nullptr;
  auto* const functor = static_cast<Functor*>(tag);
  if (!IsCode(reinterpret_cast<void*>(functor->functor_run))) return nullptr;
  {
    Started& started = Operations();
    const std::lock_guard<std::mutex> lock(started.mutex);
    started.functions[functor] = functor->functor_run;
  }
  functor->functor_run = AcquireAndRun;
  __tsan_release(functor);
  return functor;
}

}  // namespace

extern "C" {

// Weak: most programs have no gRPC.
__attribute__((weak)) grpc_call_error __real_grpc_call_start_batch(
    grpc_call* call, const grpc_op* operations, size_t count, void* tag,
    void* reserved);

grpc_call_error __wrap_grpc_call_start_batch(grpc_call* call,
                                             const grpc_op* operations,
                                             size_t count, void* tag,
                                             void* reserved) {
  Functor* const functor = HandOver(tag);
  const grpc_call_error error =
      __real_grpc_call_start_batch(call, operations, count, tag, reserved);
  if (error != GRPC_CALL_OK && functor != nullptr) TakeBack(functor);
  return error;
}

}  // extern "C"
