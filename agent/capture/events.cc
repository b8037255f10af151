#include "agent/capture/events.h"

#include <optional>

#include "agent/capture/call_recorder.h"
#include "agent/capture/call_site.h"
#include "agent/capture/capture_mode.h"
#include "agent/capture/model_definitions.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/python_ref.h"
#include "agent/torch/tensor_view.h"
#include "agent/torch/torch_api.h"

namespace traincheck {
namespace {

// Digests below this size take less time than handing the GIL over.
constexpr uint64_t kReleaseGilBytes = 1u << 20;

struct StateWithDigests {
  StateRecord state;
  uint64_t digests[2];
};

// Digests in the order data, gradient. Returns how many there are.
int ReadState(int what, PyObject* tensor, StateWithDigests* record) {
  if (!TorchApi::IsTensor(tensor)) {
    record->state.content = kUnreadable;
    return 0;
  }
  int digests = 0;
  uint8_t content = 0;
  if (IsLeaf(tensor)) content |= kIsLeaf;
  if (RequiresGrad(tensor)) content |= kRequiresGrad;
  if ((what & kStateData) != 0) {
    if (const auto data = DigestOf(tensor)) {
      record->digests[digests++] = data->digest;
      content |= kHasData | (data->all_zero ? kDataIsZero : 0);
    } else {
      content |= kUnreadable;
    }
  }
  if ((what & kStateGrad) != 0) {
    const Ref grad = GradOf(tensor);
    const auto digest = grad && grad.get() != Py_None
                            ? DigestOf(grad.get())
                            : std::optional<ContentDigest>();
    if (digest) {
      record->digests[digests++] = digest->digest;
      content |= kHasGrad | (digest->all_zero ? kGradIsZero : 0);
    } else {
      content |= grad.get() == Py_None ? kGradIsNone : kUnreadable;
    }
  }
  record->state.content = content;
  return digests;
}

// Where large tensors take turns: is there something to digest and is it
// another's turn?
bool HasToWait(int what, uint32_t variable, PyObject* tensor) {
  if (g_rotation.HasTurn(VariableHash(variable))) return false;
  if (!TorchApi::IsTensor(tensor)) return false;
  const Ref grad = what == kStateGrad ? GradOf(tensor) : Ref();
  if (grad.get() == Py_None) return false;
  const std::optional<TensorView> view =
      TensorView::Of(LocalTensor(tensor).get());
  return view && view->bytes() >= kRotatedBytes;
}

// Whose loop an event belongs to. An engine thread has no backward of its own:
// it works for the thread that called it.
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
  process.Tend();
}

// Runs `event` on the step rule of this thread's loop.
template <typename Event>
bool TellStepRule(const Event& event) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return false;
  ProcessRecorder& process = *ProcessRecorder::GetIfMade();
  if (!process.step_rules().Tell(LoopOf(*thread, process), event)) return false;
  MarkClosedStep(thread, process, process.closed_steps() - 1);
  return true;
}

}  // namespace

std::optional<ContentDigest> DigestOf(PyObject* tensor) {
  const Ref local = LocalTensor(tensor);
  const std::optional<TensorView> view = TensorView::Of(local.get());
  if (!view) return std::nullopt;
  if (view->bytes() < kReleaseGilBytes) return view->Digest();
  PyThreadState* thread = PyEval_SaveThread();
  const ContentDigest digest = view->Digest();
  PyEval_RestoreThread(thread);
  return digest;
}

bool RecordStates(StatePoint point, int what,
                  const std::vector<uint32_t>& variables, PyObject* tensors) {
  if (CurrentThread() == nullptr) return true;
  const TorchApi::WithoutOverrides direct;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Ref tensor(PySequence_GetItem(tensors, static_cast<Py_ssize_t>(i)));
    if (!tensor) return false;
    if (variables[i] == 0) continue;
    StateWithDigests record = {};
    record.state.variable = variables[i];
    record.state.point = static_cast<uint8_t>(point);
    const bool waits = HasToWait(what, variables[i], tensor.get());
    const int digests = ReadState(waits ? 0 : what, tensor.get(), &record);
    if (waits) record.state.content |= kUnreadable;
    // Asked for again: while the GIL was released anything may have happened.
    ThreadRecorder* thread = CurrentThread();
    if (thread == nullptr) return true;
    thread->Append(&record.state.header,
                   sizeof(StateRecord) + digests * sizeof(uint64_t),
                   RecordType::kState, 0);
  }
  return true;
}

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

void SetCaptureMode(CaptureMode mode) {
  if (mode == g_capture_mode) return;
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  const bool was_off = g_capture_mode == CaptureMode::kOff;
  MarkRecord mark = {};
  mark.value = static_cast<uint64_t>(mode);
  // The mark itself is recorded in any case.
  if (was_off) g_capture_mode = mode;
  if (was_off) thread->WriteClockSync();
  thread->Append(mark, RecordType::kMark,
                 static_cast<uint8_t>(MarkKind::kCaptureMode));
  g_capture_mode = mode;
}

void RecordContext(bool enter, const std::string& name) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  // One entry a context class, by name; a handful in a program.
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
  thread->Append(record,
                 enter ? RecordType::kContextEnter : RecordType::kContextExit);
}

void RecordPlace(const PlaceRecord& place) {
  ThreadRecorder* thread = CurrentThread();
  if (thread != nullptr) thread->Append(place, RecordType::kPlace);
}

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

bool StepExit() {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return false;
  ProcessRecorder& process = *ProcessRecorder::GetIfMade();
  const uint64_t before = process.closed_steps();
  const uint64_t ended = process.step_rules().EndAll();
  for (uint64_t i = 0; i < ended; ++i) {
    MarkClosedStep(thread, process, before + i);
  }
  return ended > 0;
}

}  // namespace traincheck
