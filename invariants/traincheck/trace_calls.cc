#include "invariants/traincheck/trace_calls.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "invariants/traincheck/function_kind.h"
#include "invariants/traincheck/trace_values.h"

namespace traincheck {

namespace {

using nlohmann::json;

// The values of a call take at most this much of its record, as with the agent.
constexpr size_t kCallBytes = 1536;

bool IsBound(const TraceLine& line) {
  return line.Any("is_bound_method") == true;
}

// {TYPE: VALUE} of the first argument; null: not recorded.
const json* Self(const TraceLine& line) {
  const json& arguments = line.Object("args");
  if (!arguments.is_object()) return nullptr;
  const auto self = arguments.find("0");
  if (self == arguments.end() || !self->is_object() || self->size() != 1) {
    return nullptr;
  }
  return &*self;
}

// The attribute `training` of a module that is called.
std::optional<bool> Mode(const TraceLine& line) {
  const json* self = Self(line);
  if (self == nullptr || !self->begin()->is_object()) return std::nullopt;
  const auto mode = self->begin()->find("training");
  if (mode == self->begin()->end() || !mode->is_boolean()) return std::nullopt;
  return mode->get<bool>();
}

constexpr char kGradContexts[] = "torch.autograd.grad_mode.";

// Grad contexts that take as an argument whether gradients are on.
bool IsTold(const std::string& name) {
  return absl::StrContains(name, ".set_grad_enabled.") ||
         absl::StrContains(name, ".inference_mode.");
}

// The bool among the arguments; none: the call was given none.
std::optional<bool> TruthOf(const TraceLine& line) {
  for (const char* key : {"args", "kwargs"}) {
    const json& arguments = line.Object(key);
    if (!arguments.is_object()) continue;
    for (const json& typed : arguments) {
      if (!typed.is_object() || typed.size() != 1) continue;
      if (typed.begin()->is_boolean()) return typed.begin()->get<bool>();
    }
  }
  return std::nullopt;
}

// The mode of a context that is about to be made. inference_mode(False)
// switches gradients on, every other use of it off.
void NoteGradMode(const std::string& name, const TraceLine& line,
                  TraceThread* thread) {
  const bool inference = absl::StrContains(name, ".inference_mode.");
  const std::optional<bool> truth = TruthOf(line);
  thread->made_grad_mode.reset();
  if (!truth && !inference) return;
  thread->made_grad_mode = {inference ? !truth.value_or(true) : *truth,
                            thread->grad_mode()};
}

// What is in force in the context that is entered.
bool GradModeIn(const std::string& name, const TraceThread& thread, bool now) {
  if (absl::StrContains(name, ".enable_grad.")) return true;
  if (IsTold(name) && thread.made_grad_mode) {
    return thread.made_grad_mode->enabled;
  }
  // The begin of __init__ is not in the trace, so the argument is not known:
  // set_grad_enabled counts as no change, the others switch gradients off.
  return absl::StrContains(name, ".set_grad_enabled.") ? now : false;
}

// "a.b.Class" of "a.b.Class.method".
std::string ClassOf(const std::string& method) {
  const size_t dot = method.rfind('.');
  return dot == std::string::npos ? method : method.substr(0, dot);
}

// A line of Python's own, `File "train.py", line 12, in main`.
struct Frame {
  std::string file;
  uint64_t line = 0;
  std::string function;
};

// A frame without ", in FUNCTION" is taken as well; one without a number is
// not.
std::optional<Frame> ParseFrame(const std::string& text) {
  constexpr char kFile[] = "File \"";
  constexpr char kLine[] = "\", line ";
  const size_t file = text.find(kFile);
  const size_t line = text.find(kLine);
  if (file == std::string::npos || line == std::string::npos || line < file) {
    return std::nullopt;
  }
  Frame frame;
  const size_t name = file + sizeof kFile - 1;
  frame.file = text.substr(name, line - name);
  const size_t number = line + sizeof kLine - 1;
  const size_t comma = text.find(", in ", number);
  if (!absl::SimpleAtoi(text.substr(number, comma - number), &frame.line)) {
    return std::nullopt;
  }
  if (comma == std::string::npos) return frame;
  const size_t function = comma + 5;
  frame.function = text.substr(function, text.find('\n', function) - function);
  return frame;
}

// False for frames of installed packages and of TrainCheck's own wrappers,
// which stand around each call.
bool IsOfUser(const Frame& frame) {
  for (const char* part :
       {"/site-packages/", "/dist-packages/", "/traincheck/", "<frozen"}) {
    if (absl::StrContains(frame.file, part)) return false;
  }
  return true;
}

}  // namespace

std::string TraceCalls::Take(const TraceLine& line, TraceThread* thread) {
  return line.kind == TraceLineKind::kCallBegin ? Begin(line, thread)
                                                : End(line, thread);
}

uint32_t TraceCalls::ObjectOf(const TraceLine& line) {
  const json& id = line.Any("obj_id");
  if (!IsBound(line) || !id.is_number_unsigned()) return 0;
  const json* self = Self(line);
  // The type of the first argument is the object's own class. The function's
  // name may have that of a base class, which defines the method.
  const std::string class_name =
      self != nullptr ? self->begin().key() : ClassOf(line.function());
  // Tensors are not objects of records: each new tensor would define one.
  if (IsTensorClass(class_name)) return 0;
  return conversion_.definitions().Object(id.get<uint64_t>(), class_name,
                                          Mode(line).has_value());
}

// The innermost line of the user's own.
uint32_t TraceCalls::SiteOf(const TraceLine& line) {
  const json& stack = line.Any("stack_trace");
  if (!stack.is_array()) return 0;
  // As in Python's tracebacks the innermost line comes last.
  for (auto at = stack.rbegin(); at != stack.rend(); ++at) {
    if (!at->is_string()) continue;
    const auto frame = ParseFrame(at->get_ref<const std::string&>());
    if (!frame || !IsOfUser(*frame)) continue;
    return conversion_.definitions().Site(frame->file, frame->line,
                                          frame->function);
  }
  return 0;
}

// The flags that an agent writes, derived from the open calls: a trace records
// none of them but a module's mode.
uint8_t TraceCalls::FlagsOf(const TraceLine& line, const TraceThread& thread,
                            const Call& call) const {
  uint8_t flags = kOutermost;
  // As with the agent: a step that calls the step of its base class is one
  // step.
  if (thread.open.HasLike(call)) flags &= static_cast<uint8_t>(~kOutermost);
  const bool grad = thread.open.empty() ? thread.grad_enabled
                                        : thread.open.back().grad_enabled;
  if (grad) flags |= kGradEnabled;
  if (thread.Inside(CallCategory::kBackward)) flags |= kInsideBackward;
  if (HasCategory(call, CallCategory::kForward)) {
    if (!thread.Inside(CallCategory::kForward)) flags |= kRootModuleCall;
    if (Mode(line).value_or(false)) flags |= kModuleTraining;
  }
  return flags;
}

// What an agent does when a wrapped function is entered: define it, number the
// call, note where it was called from, and write the record before anything
// that happens within.
std::string TraceCalls::Begin(const TraceLine& line, TraceThread* thread) {
  // Of two open calls with one id nobody could say which of them ends.
  if (thread->open.Has(line.call())) return "the call has begun already";
  const DefinedFunction& function =
      conversion_.definitions().Function(line.function(), IsBound(line));
  OpenTraceCall open;
  open.id = line.call();
  open.call.ring = thread->ring;
  open.call.function_id = function.id;
  open.call.function = &function.info;
  open.call.object = ObjectOf(line);
  open.call.site = SiteOf(line);
  // Before the call is pushed: the flags depend on the calls around it.
  open.call.flags = FlagsOf(line, *thread, open.call);
  // What this call calls inherits the mode, until a context within it changes
  // that.
  open.grad_enabled = open.call.Is(kGradEnabled);
  // First the clock: the mark of a step that this call closes stands before the
  // call, as an agent writes it.
  conversion_.clock().OnCallBegin(open.call);
  conversion_.TellClosedSteps(*thread);
  open.call.number = conversion_.records().NextCall(thread->ring);
  if (absl::StartsWith(function.info.name, kGradContexts) &&
      absl::EndsWith(function.info.name, ".__init__") &&
      IsTold(function.info.name)) {
    NoteGradMode(function.info.name, line, thread);
  }
  // A context begins at the end of its __enter__ (in End) and ends here, at the
  // begin of its __exit__. In both places the call itself is not among the open
  // ones, so the mode that changes is its caller's.
  if (absl::EndsWith(function.info.name, ".__exit__")) {
    FollowGradMode(function.info.name, line, thread);
  }
  WriteBegin(line, *thread, open.call);
  thread->open.Push(std::move(open));
  return "";
}

void TraceCalls::WriteBegin(const TraceLine& line, const TraceThread& thread,
                            const Call& call) {
  CallBeginRecord begin = {};
  begin.function = call.function_id;
  begin.site = call.site;
  begin.call = static_cast<uint32_t>(call.number);
  if (const Call* parent = thread.innermost()) {
    begin.parent_distance = static_cast<uint32_t>(call.number - parent->number);
  }
  RecordBuffer buffer;
  // The capacity is the bound for values, far below the size of the buffer.
  FieldWriter out(buffer.bytes, kCallBytes, begin);
  if (call.object != 0) out.Unsigned(Field::kSelfObject, call.object);
  TraceValues values(&conversion_.definitions(), &out);
  const json& positional = line.Object("args");
  if (positional.is_object()) {
    for (const auto& [index, value] : positional.items()) {
      // self is not an argument: its number stands above, where it has one.
      if (index == "0" && IsBound(line)) continue;
      values.Argument("args[" + index + "]", value);
    }
  }
  const json& named = line.Object("kwargs");
  if (named.is_object()) {
    for (const auto& [name, value] : named.items()) {
      values.Argument(name, value);
    }
  }
  conversion_.records().Finish(thread.ring, &out, &buffer,
                               RecordType::kCallBegin, call.flags);
}

// Ends the call and all that it left open. The marks of a loader stand before
// its end and those of a closed step behind it, as an agent writes them.
std::string TraceCalls::End(const TraceLine& line, TraceThread* thread) {
  OpenTraceCalls& open = thread->open;
  if (!open.Has(line.call())) return "the call has not begun on its thread";
  // What it called and never ended: a reader sees that as a gap.
  for (; open.back().id != line.call(); open.Pop()) {
    conversion_.AddIncomplete(1);
  }
  // A copy: the entry goes before the clock hears of the end.
  const Call call = open.back().call;
  // While the call is open, so that the marks lie within it.
  TellLoader(line, call, thread);
  WriteEnd(line, *thread, call);
  open.Pop();
  conversion_.clock().OnCallEnd(call);
  conversion_.TellClosedSteps(*thread);
  // From now on a state outside of all calls is one after a step (PointOf in
  // trace_states.cc).
  stepped_ |= IsOptimizerStep(call);
  if (!absl::EndsWith(call.function->name, ".__exit__")) {
    FollowGradMode(call.function->name, line, thread);
  }
  return "";
}

// A call that raised has an exception in the place of results; its message has
// no place in a record.
void TraceCalls::WriteEnd(const TraceLine& line, const TraceThread& thread,
                          const Call& call) {
  CallEndRecord end = {};
  end.call = static_cast<uint32_t>(call.number);
  end.function = call.function_id;
  RecordBuffer buffer;
  FieldWriter out(buffer.bytes, kCallBytes, end);
  if (line.kind == TraceLineKind::kCallRaised) {
    const json& exception = line.Any("exception");
    if (exception.is_string()) {
      out.Unsigned(Field::kException, conversion_.definitions().String(
                                          exception.get<std::string>()));
    }
    if (line.Any("exception_msg").is_string()) {
      conversion_.LeaveOut("exception_msg");
    }
    return conversion_.records().Finish(thread.ring, &out, &buffer,
                                        RecordType::kCallRaised, 0);
  }
  uint8_t flags = 0;
  if (line.json.contains("return_values")) {
    const json& result = line.Any("return_values");
    TraceValues(&conversion_.definitions(), &out).Result(result);
    const GradFnSearch search = FindGradFn(result);
    if (search.searched) flags |= kOutputSearched;
    if (search.found) flags |= kOutputHasGradFn;
  }
  conversion_.records().Finish(thread.ring, &out, &buffer, RecordType::kCallEnd,
                               flags);
}

// Marks within the call that makes an iterator or takes a batch from it.
void TraceCalls::TellLoader(const TraceLine& line, const Call& call,
                            TraceThread* thread) {
  const std::string& category = call.function->category.text();
  const bool returned = line.kind == TraceLineKind::kCallEnd;
  if (category == "loader_iter" && returned && call.object != 0) {
    last_loader_ = call.object;
    conversion_.Mark(thread, MarkKind::kIteratorCreated, call.object,
                     ordinals_[call.object]);
    return;
  }
  if (category != "loader_next" || call.object == 0) return;
  const auto [found, is_new] = iterators_.try_emplace(call.object);
  Iterator& iterator = found->second;
  // Python gives the id of one that is gone to the next.
  const bool is_next = iterator.exhausted && (last_loader_ != 0 || returned);
  if (is_new || is_next) {
    iterator = Iterator();
    // The trace does not say whose iterator it is: that of the loader that
    // made one last, or it stands for a loader of its own.
    iterator.loader = last_loader_ != 0 ? last_loader_ : call.object;
    last_loader_ = 0;
    iterator.ordinal = ordinals_[iterator.loader]++;
  }
  if (returned) {
    conversion_.Mark(thread, MarkKind::kBatchFetched, iterator.loader,
                     iterator.fetched++);
  } else if (line.Any("exception") == "StopIteration") {
    iterator.exhausted = true;
    conversion_.Mark(thread, MarkKind::kIteratorExhausted, iterator.loader,
                     iterator.ordinal);
  }
}

// Gradients are on at first. What a context switches, and what torch answers to
// is_grad_enabled, holds for the code around that call.
void TraceCalls::FollowGradMode(const std::string& name, const TraceLine& line,
                                TraceThread* thread) {
  if (name == "torch.is_grad_enabled") {
    const json& result = line.Object("return_values");
    if (result.is_object() && result.size() == 1 &&
        result.begin()->is_boolean()) {
      thread->grad_mode() = result.begin()->get<bool>();
    }
    return;
  }
  if (!absl::StartsWith(name, kGradContexts)) return;
  const std::optional<MadeGradMode>& made = thread->made_grad_mode;
  if (absl::EndsWith(name, ".__enter__")) {
    const bool now = thread->grad_mode();
    thread->grad_before.push_back(IsTold(name) && made ? made->before : now);
    thread->grad_mode() = GradModeIn(name, *thread, now);
    thread->made_grad_mode.reset();
  } else if (absl::EndsWith(name, ".set_grad_enabled.__init__") && made) {
    thread->grad_mode() = made->enabled;
  } else if (absl::EndsWith(name, ".__exit__") &&
             !thread->grad_before.empty()) {
    thread->grad_mode() = thread->grad_before.back();
    thread->grad_before.pop_back();
  }
}

}  // namespace traincheck
