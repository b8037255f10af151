#include "agent/torch/torch_api.h"

#include "agent/cpython/loaded_function.h"

namespace traincheck::agent {
namespace {

// The mangled name of torch::jit::tracer::getTracingState(). It is asked at
// every call, and by way of Python this would take 180 ns.
constexpr char kTracingState[] = "_ZN5torch3jit6tracer15getTracingStateEv";

// Attribute by a dotted path; none without an exception.
Ref Path(PyObject* object, std::initializer_list<const char*> names) {
  Ref at = Ref::Borrow(object);
  for (const char* name : names) {
    if (at) at = Attribute(at.get(), name);
  }
  return at;
}

// For __enter__() and __exit__(None, None, None) of a guard: `nones` arguments,
// and the result is dropped.
void CallMethod(PyObject* object, const char* name, int nones) {
  const Ref method = Attribute(object, name);
  PyObject* const arguments[] = {Py_None, Py_None, Py_None};
  const Ref result(
      method ? PyObject_Vectorcall(method.get(), arguments, nones, nullptr)
             : nullptr);
  if (!result) DropException();
}

}  // namespace

TorchApi& TorchApi::Get() {
  static auto* api = new TorchApi;
  return *api;
}

// Called once, at the end of `import torch`.
std::string TorchApi::Bind(PyObject* torch) {
  TorchApi& api = Get();
  api.is_grad_enabled_ = Question(Path(torch, {"is_grad_enabled"}));
  api.current_graph_task_id_ =
      Question(Path(torch, {"_C", "_current_graph_task_id"}));
  api.tracing_state_ = reinterpret_cast<TracingState>(
      LoadedFunction("libtorch_cpu.so", kTracingState));
  api.get_tracing_state_ = Question(Path(torch, {"_C", "_get_tracing_state"}));
  api.disable_torch_function_ = Path(torch, {"_C", "DisableTorchFunction"});
  api.tensor_type_ = Path(torch, {"Tensor"});
  api.plain_dispatch_ = Path(torch, {"Tensor", "__torch_dispatch__"});
  api.strided_ = Path(torch, {"strided"});
  // Without one of these the agent stays off. What else is missing has a slower
  // way or a neutral answer.
  if (!api.is_grad_enabled_) return "torch.is_grad_enabled";
  if (!api.current_graph_task_id_) return "torch._C._current_graph_task_id";
  if (!api.disable_torch_function_) return "torch._C.DisableTorchFunction";
  if (!api.tensor_type_ || !PyType_Check(api.tensor_type_.get())) {
    return "torch.Tensor";
  }
  if (!api.strided_) return "torch.strided";
  return "";
}

// torch's questions without arguments are C functions. Calling the C function
// directly leaves out the interpreter's dispatch; any other callable is called
// normally.
TorchApi::Question::Question(Ref function) : function_(std::move(function)) {
  if (!function_ || !PyCFunction_Check(function_.get()) ||
      PyCFunction_GetFlags(function_.get()) != METH_NOARGS) {
    return;
  }
  c_function_ = PyCFunction_GetFunction(function_.get());
  c_self_ = PyCFunction_GetSelf(function_.get());
}

Ref TorchApi::Question::Ask() const {
  if (!function_) return Ref();
  Ref answer(c_function_ != nullptr
                 ? c_function_(c_self_, nullptr)
                 : PyObject_Vectorcall(function_.get(), nullptr, 0, nullptr));
  if (!answer) DropException();
  return answer;
}

bool TorchApi::GradEnabled() {
  return Get().is_grad_enabled_.Ask().get() == Py_True;
}

bool TorchApi::InGraphTask() {
  const Ref answer = Get().current_graph_task_id_.Ask();
  // -1 says that no backward runs.
  const long id = answer ? PyLong_AsLong(answer.get()) : -1;
  DropException();
  return id >= 0;
}

// The C++ function returns a reference to a smart pointer, whose first word is
// null while nothing is traced.
bool TorchApi::Tracing() {
  const TorchApi& api = Get();
  if (api.tracing_state_ != nullptr) return *api.tracing_state_() != nullptr;
  const Ref answer = api.get_tracing_state_.Ask();
  return answer && answer.get() != Py_None;
}

bool TorchApi::IsTensor(PyObject* value) {
  auto* type = reinterpret_cast<PyTypeObject*>(Get().tensor_type_.get());
  if (Py_TYPE(value) == type) return true;  // most are
  return type != nullptr && PyType_IsSubtype(Py_TYPE(value), type) != 0;
}

// Subclasses that inherit __torch_dispatch__ (Parameter among them) keep their
// bytes as a plain tensor does.
bool TorchApi::IsPlainTensor(PyObject* value) {
  if (!IsTensor(value)) return false;
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  if (type == Get().tensor_type_.get()) return true;
  // A class that has put its own in its place may keep its bytes elsewhere.
  static PyObject* name = PyUnicode_InternFromString("__torch_dispatch__");
  return Attribute(type, name).get() == Get().plain_dispatch_.get();
}

bool TorchApi::IsStrided(PyObject* layout) {
  return layout != nullptr && layout == Get().strided_.get();
}

TorchApi::WithoutOverrides::WithoutOverrides() {
  PyObject* type = Get().disable_torch_function_.get();
  if (type == nullptr) return;
  // The guard is an object of torch's that counts on this thread between
  // __enter__ and __exit__.
  guard_ = Ref(PyObject_Vectorcall(type, nullptr, 0, nullptr));
  if (guard_) {
    CallMethod(guard_.get(), "__enter__", 0);
  } else {
    DropException();
  }
}

TorchApi::WithoutOverrides::~WithoutOverrides() {
  if (!guard_) return;
  // The user's exception may be on its way through the scope.
  const SavedException exception;
  CallMethod(guard_.get(), "__exit__", 3);
}

}  // namespace traincheck::agent
