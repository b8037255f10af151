#include "agent/capture/call_recorder.h"

#include <algorithm>

#include "agent/capture/call_site.h"
#include "agent/capture/object_table.h"
#include "agent/capture/own_time.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Fixed part and three fields.
constexpr size_t kMaxBareBytes = 64;

// The backward whose graph runs on this thread, which has no open call of its
// own: on GPUs autograd runs on engine threads. Of several that are open
// nothing says whose graph it is: the one that began last is taken.
const OpenBackward* ForeignParent(const ThreadRecorder& thread,
                                  ProcessRecorder& process) {
  if (process.open_backwards().empty() || !TorchApi::InGraphTask()) {
    return nullptr;
  }
  return &process.open_backwards().back();
}

// "Outermost" is decided by object: a call is outermost also within a call of
// another object, as an optimizer's step is within the step of an optimizer
// that wraps it.
bool IsOutermost(const std::vector<OpenCall>& open, Category category,
                 const void* self) {
  return std::none_of(open.begin(), open.end(), [&](const OpenCall& call) {
    return call.category == category && call.self == self;
  });
}

// Inner module calls and what library code calls are the many; their site is
// that of the call around them.
uint32_t SiteOf(const Function& function, uint8_t flags) {
  if (function.detail) return CallSites::Get().OfCaller();
  if (function.category_number == kForwardCategory &&
      (flags & kRootModuleCall) == 0) {
    return 0;
  }
  return CallSites::Get().Here();
}

template <size_t kBytes>
struct alignas(8) RecordBuffer {
  char bytes[kBytes];
};

// The two fields that every begin may carry: the called object and, for a call
// on an engine thread, the backward that it belongs to.
void PutBegin(FieldWriter* out, PyObject* self, const OpenBackward* foreign) {
  const uint32_t object = self == nullptr ? 0 : ObjectTable::Get().IdOf(self);
  if (object != 0) out->Unsigned(Field::kSelfObject, object);
  if (foreign != nullptr) {
    out->Unsigned(Field::kParentRing, foreign->ring);
    out->Unsigned(Field::kParentCall, foreign->call);
  }
}

// The common case: no content, so that a small buffer on the stack is enough.
void WriteBegin(ThreadRecorder& thread, const CallBeginRecord& begin,
                PyObject* self, const OpenBackward* foreign) {
  RecordBuffer<kMaxBareBytes> buffer;
  FieldWriter out(buffer.bytes, sizeof buffer, begin);
  PutBegin(&out, self, foreign);
  thread.Append(out, buffer.bytes, RecordType::kCallBegin, begin.header.flags);
}

// As WriteBegin, with what the plan wants to know of the arguments.
void WriteTellingBegin(ThreadRecorder& thread, const CallBeginRecord& begin,
                       const CallContent& content,
                       const CallArguments& arguments,
                       const OpenBackward* foreign) {
  RecordBuffer<kMaxBareBytes + kMaxContentBytes> buffer;
  FieldWriter out(buffer.bytes, sizeof buffer, begin);
  PutBegin(&out, arguments.first(), foreign);
  if (g_capture_mode == CaptureMode::kAll) {
    content.WriteArguments(arguments, &out,
                           &ProcessRecorder::GetIfMade()->definitions());
  } else {
    // Else an argument that is not here would look like one not given.
    out.Unsigned(Field::kContentCut, 1);
  }
  thread.Append(out, buffer.bytes, RecordType::kCallBegin, begin.header.flags);
}

void WriteTellingEnd(ThreadRecorder& thread, const CallEndRecord& end,
                     const CallContent& content, PyObject* result,
                     uint8_t flags) {
  RecordBuffer<kMaxBareBytes + kMaxContentBytes> buffer;
  FieldWriter out(buffer.bytes, sizeof buffer, end);
  content.WriteReturn(result, &out,
                      &ProcessRecorder::GetIfMade()->definitions());
  thread.Append(out, buffer.bytes, RecordType::kCallEnd, flags);
}

// The user's exception is in flight and must arrive unchanged.
void WriteRaised(ThreadRecorder& thread, const CallEndRecord& end) {
  const SavedException exception;
  RecordBuffer<kMaxBareBytes> buffer;
  FieldWriter out(buffer.bytes, sizeof buffer, end);
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process != nullptr) {
    // The class alone: its text may hold anything of the user's
    // (docs/privacy.md).
    out.Unsigned(Field::kException, process->definitions().String(
                                        QualifiedTypeName(exception.type())));
  }
  thread.Append(out, buffer.bytes, RecordType::kCallRaised, 0);
}

// Do the records of this function cost much the same each time? Calls that
// digest tensors do not, so each of them is timed (own_time.h).
bool IsOneOfMany(const Function& function) {
  return function.content == nullptr || !function.content->reads_attributes;
}

}  // namespace

// The first three have the numbers of the constants.
Category CategoryNumber(const std::string& category) {
  static auto* known = new std::vector<std::string>{"", "forward", "backward"};
  const auto it = std::find(known->begin(), known->end(), category);
  if (it != known->end()) return static_cast<Category>(it - known->begin());
  if (known->size() > 255) return 255;
  known->push_back(category);
  return static_cast<Category>(known->size() - 1);
}

// The number is valid for one generation: a forked child defines all its
// functions again in its own ring 0.
uint32_t FunctionId(Function& function) {
  if (function.generation == g_generation) [[likely]] {
    return function.id;
  }
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return 0;
  const uint32_t id = process->definitions().Function(function.facts);
  // 0 is not kept: the next call tries again.
  if (id != 0) {
    function.id = id;
    function.generation = g_generation;
  }
  return id;
}

// The count of the innermost open call includes all calls around it, so no
// stack is walked.
bool IsRootForward(ThreadRecorder& thread) {
  const std::vector<OpenCall>& open = thread.open_calls();
  return open.empty() || open.back().forwards == 0;
}

// The order matters: flags come from the stack before this call is on it, and
// the definition of the function is committed before the record that names it.
CallInProgress BeginCall(ThreadRecorder& thread, Function& function,
                         const CallArguments& arguments, uint8_t flags) {
  const OwnTimeOfCall time(IsOneOfMany(function));
  PyObject* self = arguments.first();
  // Never null: a thread's recorder belongs to that of its process.
  ProcessRecorder& process = *ProcessRecorder::GetIfMade();
  // Another thread may have closed a step since this ring's last record.
  thread.SyncWith(process.closed_steps());
  std::vector<OpenCall>& open = thread.open_calls();
  const Category category = function.category_number;
  const OpenCall* parent = open.empty() ? nullptr : &open.back();
  const auto* foreign =
      parent == nullptr ? ForeignParent(thread, process) : nullptr;
  // Counts go from call to call, so that nobody walks the stack for them.
  OpenCall call = {thread.NextCall(), self, category,
                   parent == nullptr ? 0 : parent->forwards,
                   parent == nullptr ? 0 : parent->backwards};

  // Everything that decides about the call later (stage, root, outermost) is a
  // flag of its begin record, because a reader sees no Python state.
  if (TorchApi::GradEnabled()) flags |= kGradEnabled;
  if (call.backwards > 0 || foreign != nullptr) flags |= kInsideBackward;
  if (foreign != nullptr) flags |= kForeignParent;
  if (IsOutermost(open, category, self)) flags |= kOutermost;
  call.forwards += category == kForwardCategory;
  call.backwards += category == kBackwardCategory;

  const CallInProgress result = {call.number, open.size(), FunctionId(function),
                                 g_generation, flags};
  CallBeginRecord begin = {};
  begin.function = result.function;
  begin.site = SiteOf(function, flags);
  begin.header.flags = flags;
  begin.call = static_cast<uint32_t>(call.number);
  begin.parent_distance =
      parent == nullptr ? 0
                        : static_cast<uint32_t>(call.number - parent->number);
  open.push_back(call);
  if (category == kBackwardCategory) {
    process.open_backwards().push_back({thread.ring().ring(), call.number});
  }
  if (function.content == nullptr) [[likely]] {
    WriteBegin(thread, begin, self, foreign);
  } else {
    WriteTellingBegin(thread, begin, *function.content, arguments, foreign);
  }
  return result;
}

// A call may end in another state than it began: the thread's recorder may be
// gone, or this may be the child of a fork within the call.
void EndCall(const CallInProgress& call, const Function& function,
             PyObject* result, uint8_t output_flags) {
  const OwnTimeOfCall time(IsOneOfMany(function));
  ThreadRecorder* thread = t_thread;
  if (thread == nullptr || call.generation != g_generation) return;
  std::vector<OpenCall>& open = thread->open_calls();
  CloseBackwards(thread->ring().ring(), open, call.depth, call.number,
                 &ProcessRecorder::GetIfMade()->open_backwards());
  // Whatever calls above it never ended (a thread of greenlets, say).
  if (open.size() > call.depth) open.resize(call.depth);
  const CallEndRecord end = {
      {}, static_cast<uint32_t>(call.number), call.function};
  if (result == nullptr) {
    WriteRaised(*thread, end);
  } else if (function.content != nullptr && function.content->returns &&
             g_capture_mode == CaptureMode::kAll) {
    WriteTellingEnd(*thread, end, *function.content, result, output_flags);
  } else {
    // Without content also where the step is not sampled: the begin has said
    // so.
    thread->Append(end, RecordType::kCallEnd, output_flags);
  }
}

}  // namespace traincheck::agent
