// Begin and end of a call, on the calling thread's ring.
//
// Threads: GIL held; begin and end of a call on the same thread.
#ifndef TRAINCHECK_AGENT_CAPTURE_CALL_RECORDER_H_
#define TRAINCHECK_AGENT_CAPTURE_CALL_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/capture/call_content.h"
#include "agent/capture/capture_mode.h"
#include "agent/capture/process_recorder.h"
#include "agent/cpython/python_api.h"

namespace traincheck::agent {

// Numbers of categories, the same for equal texts. Two mean something here.
using Category = uint8_t;
inline constexpr Category kForwardCategory = 1;
inline constexpr Category kBackwardCategory = 2;
// More than 255 of them share the last.
Category CategoryNumber(const std::string& category);

// A function as records name it; its number is made at the first call.
struct Function {
  FunctionFacts facts;
  Category category_number = 0;
  uint32_t id = 0;
  uint32_t generation = 0;  // in which id was made; 0: the facts have changed
  std::unique_ptr<CallContent> content;  // null: nothing but begin and end
  // Beyond the skeleton: can be switched off, and has a call site only where
  // user code itself calls it.
  bool detail = false;
  bool active = true;  // always, but for details
};

// Does the plan ask for its calls, and in this step?
inline bool IsRecorded(const Function& function) {
  return function.active &&
         (!function.detail || g_capture_mode == CaptureMode::kAll);
}

// 0: ring 0 has no room now.
uint32_t FunctionId(Function& function);

// A call in progress.
struct CallInProgress {
  uint64_t number;
  size_t depth;  // of the stack before it
  uint32_t function;
  uint32_t generation;
  uint8_t flags;  // CallFlag
};

// `flags` are those that the caller knows already. The first argument counts
// as the object that is called.
CallInProgress BeginCall(ThreadRecorder& thread, Function& function,
                         const CallArguments& arguments, uint8_t flags);

// Writes CallEnd, or CallRaised if the result is null: the exception that is
// set stays as it is.
// A child that was forked within the call writes nothing.
void EndCall(const CallInProgress& call, const Function& function,
             PyObject* result, uint8_t output_flags);

// Is no other forward open on the thread?
bool IsRootForward(ThreadRecorder& thread);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CALL_RECORDER_H_
