#include "agent/capture/events.h"

#include "agent/capture/call_recorder.h"
#include "agent/capture/call_site.h"
#include "agent/capture/call_values.h"
#include "agent/capture/capture_mode.h"
#include "agent/capture/process_recorder.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Bounds of the records' variable parts, so that their buffers lie on the
// stack.
constexpr size_t kMaxContextBytes = 512;
constexpr size_t kMaxClassBytes = 256;
constexpr size_t kMaxStartBytes = 64;
constexpr size_t kMaxPlaceBytes = sizeof(PlaceRecord) + kMaxStartBytes + 16;

// Writes names and values of a dict that a hook of the agent's made, as far as
// they fit.
void WriteArguments(PyObject* arguments, FieldWriter* out) {
  if (arguments == nullptr) return;
  ValueWriter values(out, &ProcessRecorder::GetIfMade()->definitions());
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(arguments, &at, &name, &value);) {
    const ValueDetail detail = {true, false, false};
    if (!values.WriteNamed(Utf8(name), value, detail)) return;
  }
}

// The thread whose loop an event belongs to, by its ring. An engine thread of
// autograd has no backward of its own: its events belong to the loop of the
// thread that called backward.
uint32_t LoopOf(ThreadRecorder& thread, ProcessRecorder& process) {
  const std::vector<OpenCall>& open = thread.open_calls();
  const bool own = !open.empty() && open.back().backwards > 0;
  const auto& backwards = process.open_backwards();
  const bool foreign = !own && !backwards.empty() && TorchApi::InGraphTask();
  return foreign ? backwards.back().ring : thread.ring().ring();
}

void MarkClosedStep(ThreadRecorder* thread, ProcessRecorder& process,
                    uint64_t step) {
  MarkRecord mark = {};
  mark.value = step;
  thread->Append(mark, RecordType::kMark,
                 static_cast<uint8_t>(MarkKind::kStepClosed));
  thread->SyncWith(process.closed_steps());
  // The agent has no thread of its own: at steps and marks it looks after its
  // relay and its definitions.
  process.Tend();
}

// Runs `event` on the step rule of this thread's loop.
// `event` returns whether it closes the step. The mark goes into the ring of
// the calling thread, which may be another than the loop's.
template <typename Event>
bool TellStepRule(const Event& event) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return false;
  ProcessRecorder& process = *ProcessRecorder::GetIfMade();
  if (!process.step_rules().Tell(LoopOf(*thread, process), event)) return false;
  // The rule has counted the step already.
  MarkClosedStep(thread, process, process.closed_steps() - 1);
  return true;
}

}  // namespace

void RecordScalar(uint32_t object, StatePoint point, uint16_t group,
                  const std::string& name, double value) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  ScalarRecord record = {};
  record.object = object;
  record.point = static_cast<uint8_t>(point);
  record.group = group;
  record.name = ProcessRecorder::GetIfMade()->definitions().String(name);
  record.value = value;
  thread->Append(record, RecordType::kScalar);
}

// Marks are rare enough that the relay and the definitions are looked after at
// each of them.
void RecordMark(MarkKind kind, uint32_t object, uint64_t value) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  MarkRecord record = {};
  record.object = object;
  record.site = CallSites::Get().Here();
  record.value = value;
  thread->Append(record, RecordType::kMark, static_cast<uint8_t>(kind));
  ProcessRecorder::GetIfMade()->Tend();
}

// The class of the exception alone: its text may hold anything of the user's
// (docs/privacy.md).
void RecordUncleanExit(PyObject* exception) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  // The mark says why, so that the rank is not taken for one that was killed.
  const bool interrupt =
      PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt) != 0;
  MarkRecord mark = {};
  mark.value = static_cast<uint64_t>(interrupt ? ExitCause::kInterrupt
                                               : ExitCause::kException);
  alignas(8) char buffer[kMaxContextBytes];
  FieldWriter out(buffer, sizeof buffer, mark);
  const std::string name =
      QualifiedTypeName(reinterpret_cast<PyObject*>(Py_TYPE(exception)));
  out.Bytes(Field::kText, std::string_view(name).substr(0, kMaxClassBytes));
  thread->Append(out, buffer, RecordType::kMark,
                 static_cast<uint8_t>(MarkKind::kUncleanExit));
  ProcessRecorder::GetIfMade()->Tend();
}

// Called between two steps. The mark says from where on records are missing on
// purpose.
void SetCaptureMode(CaptureMode mode) {
  if (mode == g_capture_mode) return;
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  const bool was_off = g_capture_mode == CaptureMode::kOff;
  MarkRecord mark = {};
  mark.value = static_cast<uint64_t>(mode);
  // The mark itself is recorded in any case, though off writes nothing: where
  // recording begins again the mode changes before its mark, where it ends
  // behind it.
  if (was_off) g_capture_mode = mode;
  if (was_off) thread->WriteClockSync();
  thread->Append(mark, RecordType::kMark,
                 static_cast<uint8_t>(MarkKind::kCaptureMode));
  g_capture_mode = mode;
}

void RecordContext(bool enter, const std::string& name, PyObject* arguments) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  // One entry a context, by name; a handful in a program.
  static auto* functions = new std::vector<std::unique_ptr<Function>>;
  Function* function = nullptr;
  for (const auto& known : *functions) {
    if (known->facts.name == name) function = known.get();
  }
  if (function == nullptr) {
    functions->push_back(std::make_unique<Function>());
    function = functions->back().get();
    function->facts.name = name;
    function->facts.category = "context";
  }
  ContextRecord record = {};
  record.function = FunctionId(*function);
  record.site = CallSites::Get().Here();
  alignas(8) char buffer[kMaxContextBytes];
  FieldWriter out(buffer, sizeof buffer, record);
  WriteArguments(arguments, &out);
  thread->Append(out, buffer,
                 enter ? RecordType::kContextEnter : RecordType::kContextExit,
                 0);
}

// A process may have several places one after another: the environment's first,
// later that of its process group.
void RecordPlace(const PlaceRecord& place, std::string_view start) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  alignas(8) char buffer[kMaxPlaceBytes];
  FieldWriter out(buffer, sizeof buffer, place);
  if (!start.empty()) out.Bytes(Field::kStart, start.substr(0, kMaxStartBytes));
  thread->Append(out, buffer, RecordType::kPlace, 0);
}

// Follows the begin of the collective's call and names the group and the
// collective's number in it, by which ranks are aligned.
void RecordCollective(uint32_t group, uint64_t sequence) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  CollectiveRecord record = {};
  record.group = group;
  record.sequence = sequence;
  thread->Append(record, RecordType::kCollective);
}

bool StepOptimizer(uint32_t optimizer) {
  return TellStepRule(
      [optimizer](StepRule& rule) { return rule.OptimizerStep(optimizer); });
}

void StepOptimizerMade() {
  if (CurrentThread() == nullptr) return;
  ProcessRecorder::GetIfMade()->step_rules().OptimizerMade();
}

bool StepBatchFetched(uint32_t loader) {
  return TellStepRule(
      [loader](StepRule& rule) { return rule.BatchFetched(loader); });
}

bool StepIteratorEnd(uint32_t loader) {
  return TellStepRule(
      [loader](StepRule& rule) { return rule.IteratorEnd(loader); });
}

bool StepGradClear() {
  return TellStepRule([](StepRule& rule) { return rule.GradClear(); });
}

bool StepTrainingForward() {
  return TellStepRule([](StepRule& rule) { return rule.TrainingForward(); });
}

void StepBackward() {
  TellStepRule([](StepRule& rule) {
    // A backward closes no step; the rule only takes note of it.
    rule.Backward();
    return false;
  });
}

bool StepUser() {
  return TellStepRule([](StepRule& rule) { return rule.UserStep(); });
}

bool StepEnd() {
  return TellStepRule([](StepRule& rule) { return rule.End(); });
}

// At exit every open step is closed, so that its windows can be judged.
bool StepExit() {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return false;
  ProcessRecorder& process = *ProcessRecorder::GetIfMade();
  // Each thread that trains has a loop of its own, whose last step is open.
  const uint64_t before = process.closed_steps();
  const uint64_t ended = process.step_rules().EndAll();
  for (uint64_t i = 0; i < ended; ++i) {
    MarkClosedStep(thread, process, before + i);
  }
  return ended > 0;
}

}  // namespace traincheck::agent
