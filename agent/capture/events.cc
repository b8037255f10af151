#include "agent/capture/events.h"

#include <optional>

#include "agent/capture/call_recorder.h"
#include "agent/capture/call_site.h"
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

// None: the bytes cannot be read here.
std::optional<ContentDigest> DigestOf(PyObject* tensor) {
  const std::optional<TensorView> view = TensorView::Of(tensor);
  if (!view) return std::nullopt;
  if (view->bytes() < kReleaseGilBytes) return view->Digest();
  PyThreadState* thread = PyEval_SaveThread();
  const ContentDigest digest = view->Digest();
  PyEval_RestoreThread(thread);
  return digest;
}

// The gradient of a tensor that may have one: asking others warns.
Ref GradOf(PyObject* tensor, bool is_leaf) {
  if (!is_leaf && !BoolAttribute(tensor, "retains_grad")) {
    return Ref::Borrow(Py_None);
  }
  return Attribute(tensor, "grad");
}

// Digests in the order data, gradient. Returns how many there are.
int ReadState(int what, PyObject* tensor, StateWithDigests* record) {
  int digests = 0;
  uint8_t content = 0;
  const bool is_leaf = BoolAttribute(tensor, "is_leaf");
  if (is_leaf) content |= kIsLeaf;
  if (BoolAttribute(tensor, "requires_grad")) content |= kRequiresGrad;
  if ((what & kStateData) != 0) {
    if (const auto data = DigestOf(tensor)) {
      record->digests[digests++] = data->digest;
      content |= kHasData | (data->all_zero ? kDataIsZero : 0);
    } else {
      content |= kUnreadable;
    }
  }
  if ((what & kStateGrad) != 0) {
    const Ref grad = GradOf(tensor, is_leaf);
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

// Runs `event` on the step rule.
template <typename Event>
bool TellStepRule(const Event& event) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return false;
  StepRule& rule = ProcessRecorder::GetIfMade()->step_rule();
  if (!event(rule)) return false;
  MarkRecord mark = {};
  mark.value = rule.step() - 1;
  thread->Append(mark, RecordType::kMark,
                 static_cast<uint8_t>(MarkKind::kStepClosed));
  thread->SyncWith(rule.step());
  return true;
}

}  // namespace

void RecordState(StatePoint point, int what, uint32_t variable,
                 PyObject* tensor) {
  if (variable == 0 || CurrentThread() == nullptr) return;
  StateWithDigests record = {};
  record.state.variable = variable;
  record.state.point = static_cast<uint8_t>(point);
  int digests = 0;
  if (TorchApi::IsTensor(tensor)) {
    const TorchApi::WithoutOverrides direct;
    digests = ReadState(what, tensor, &record);
  } else {
    record.state.content = kUnreadable;
  }
  // Reading may have let other threads run; this one's recorder is the same.
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  thread->Append(&record.state.header,
                 sizeof(StateRecord) + digests * sizeof(uint64_t),
                 RecordType::kState, 0);
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
}

void RecordContext(bool enter, const std::string& name) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  // One entry a context class, by name; a handful in a program.
  static auto* functions = new std::vector<std::unique_ptr<Function>>;
  Function* function = nullptr;
  for (const auto& known : *functions) {
    if (known->name == name) function = known.get();
  }
  if (function == nullptr) {
    functions->push_back(std::make_unique<Function>());
    function = functions->back().get();
    function->name = name;
    function->category = "context";
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

bool StepOptimizer(uint32_t optimizer) {
  return TellStepRule(
      [optimizer](StepRule& rule) { return rule.OptimizerStep(optimizer); });
}

bool StepBatchFetched() {
  return TellStepRule([](StepRule& rule) { return rule.BatchFetched(); });
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

bool StepEnd() {
  return TellStepRule([](StepRule& rule) { return rule.End(); });
}

}  // namespace traincheck
