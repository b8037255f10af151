#include "agent/capture/module_call.h"

#include <memory>
#include <string>
#include <vector>

#include "agent/capture/call_recorder.h"
#include "agent/capture/content_spec.h"
#include "agent/capture/hook_calls.h"
#include "agent/capture/object_table.h"
#include "agent/capture/own_type.h"
#include "agent/capture/wrapper.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Of an output that is a container, so many elements are searched for a tensor
// with a grad_fn. An output of the user's may have thousands.
constexpr size_t kMaxSearched = 16;
// So many levels of containers in the output are searched: [{"loss": loss}].
constexpr int kSearchedLevels = 1;
// How the names of the classes begin that torch.fx makes for graphs.
constexpr char kTracedClass[] = "torch.fx.graph_module.GraphModule.__new__.";

bool DefinesForward(PyObject* type) {
  // Members of the class itself: a forward that it inherits is its base's.
  const Ref members = Attribute(type, "__dict__");
  const Ref forward(members ? PyMapping_GetItemString(members.get(), "forward")
                            : nullptr);
  if (!forward) DropException();
  return static_cast<bool>(forward);
}

// The function "<class>.forward" and, as roles, the forward of each base class
// that defines one, down to Module's: rules about a base class hold for the
// derived class too.
std::unique_ptr<Function> DescribeForward(PyObject* made) {
  PyObject* type = OwnType(made);
  auto function = std::make_unique<Function>();
  function->facts.name = QualifiedTypeName(type) + ".forward";
  function->facts.category = "forward";
  function->category_number = kForwardCategory;
  const Ref mro = Attribute(type, "__mro__");
  const Py_ssize_t classes =
      mro && PyTuple_Check(mro.get()) ? PyTuple_Size(mro.get()) : 0;
  for (Py_ssize_t i = 1; i < classes; ++i) {
    PyObject* base = PyTuple_GetItem(mro.get(), i);
    if (!DefinesForward(base)) continue;
    function->facts.roles.push_back(QualifiedTypeName(base) + ".forward");
  }
  return function;
}

// The callback that says what records of forwards carry, and how often it was
// changed.
struct ForwardPlan {
  Ref callback;
  uint32_t version = 0;

  static ForwardPlan& Get() {
    static auto* plan = new ForwardPlan;
    return *plan;
  }
};

// What is known of one class, found by its address and dropped when the class
// dies.
struct ClassForward {
  std::unique_ptr<Function> function;
  uint32_t plan = 0;
  bool traced = false;  // torch.fx made the class
};

// torch.compile runs a graph as a module of a traced class and passes what it
// needs as arguments: the graph is the inside of something of the user's and
// not a model.
bool HoldsNothing(PyObject* module) {
  for (const char* held : {"_parameters", "_buffers", "_modules"}) {
    const Ref dict = Attribute(module, held);
    if (!dict || !PyDict_Check(dict.get()) || PyDict_Size(dict.get()) != 0) {
      return false;
    }
  }
  return true;
}

// Asks the hooks what records of this class's forward should carry. If the hook
// fails, the class keeps what it had.
void Replan(PyObject* type, Function* forward) {
  // Held while it runs, since it may put another one in its place.
  const Ref callback = Ref::Borrow(ForwardPlan::Get().callback.get());
  const Ref spec = callback ? AskHook(callback.get(), type, "forward plan")
                            : Ref::Borrow(Py_None);
  if (spec && !SetContent(spec.get(), forward)) DropException();
}

// Null: records do not show this module, or there is no memory for it.
Function* ForwardOf(PyObject* module) {
  static auto* classes = new WeakMap<ClassForward>;
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(module));
  ClassForward* known = classes->FindOrAdd(type);
  if (known == nullptr) return nullptr;
  if (known->function == nullptr) {
    known->function = DescribeForward(type);
    known->traced = known->function->facts.name.rfind(kTracedClass, 0) == 0;
  }
  if (known->traced && HoldsNothing(module)) return nullptr;
  Function* forward = known->function.get();
  const uint32_t version = ForwardPlan::Get().version;
  if (known->plan != version) {
    known->plan = version;
    Replan(type, forward);  // may add classes: `known` is not used any more
  }
  return forward;
}

// REQUIRES: it is a tensor.
bool HasGradFn(PyObject* value) {
  const Ref requires_grad = Attribute(value, "requires_grad");
  if (requires_grad.get() != Py_True) return false;
  return Attribute(value, "is_leaf").get() == Py_False;
}

// Values in which no tensor can be.
bool IsPlain(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyBytes_CheckExact(value);
}

bool IsContainer(PyObject* value) {
  return PyTuple_Check(value) || PyList_Check(value) || PyDict_Check(value);
}

// The first elements of a tuple or list, or values of a dict, held while code
// of a tensor's class may change the container. False: there are more.
bool FirstElements(PyObject* container, std::vector<Ref>* elements) {
  if (PyDict_Check(container)) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (elements->size() < kMaxSearched &&
           PyDict_Next(container, &at, &key, &value)) {
      elements->push_back(Ref::Borrow(value));
    }
    return PyDict_Size(container) <= static_cast<Py_ssize_t>(kMaxSearched);
  }
  const bool tuple = PyTuple_Check(container);
  const Py_ssize_t size =
      tuple ? PyTuple_Size(container) : PyList_Size(container);
  for (Py_ssize_t i = 0; i < size && elements->size() < kMaxSearched; ++i) {
    elements->push_back(Ref::Borrow(tuple ? PyTuple_GetItem(container, i)
                                          : PyList_GetItem(container, i)));
  }
  return size <= static_cast<Py_ssize_t>(kMaxSearched);
}

// Searches a value, what is in a container, and `levels` of containers in it;
// first all of one container, then what is in its elements. Objects of other
// classes are not searched.
class GradFnSearch {
 public:
  // Is there a tensor with a grad_fn? False says so only if `complete`.
  bool In(PyObject* value, int levels) {
    if (!IsContainer(value)) {
      const bool tensor = TorchApi::IsTensor(value);
      complete_ = complete_ && (tensor || IsPlain(value));
      return tensor && HasGradFn(value);
    }
    if (levels < 0) {
      complete_ = false;
      return false;
    }
    std::vector<Ref> elements;
    const bool all = FirstElements(value, &elements);
    complete_ = complete_ && all;
    for (const bool nested : {false, true}) {
      for (const Ref& element : elements) {
        if (IsContainer(element.get()) != nested) continue;
        if (In(element.get(), levels - 1)) return true;
      }
    }
    return false;
  }
  bool complete() const { return complete_; }

 private:
  bool complete_ = true;
};

// "Not searched" says nothing, "searched and not found" that the call was no
// part of a training: so a search that left something out counts as none.
uint8_t OutputFlags(PyObject* result, uint8_t begin_flags) {
  // Inner module calls are the many and are not searched.
  if (result == nullptr || (begin_flags & kRootModuleCall) == 0) return 0;
  const TorchApi::WithoutOverrides direct;
  GradFnSearch search;
  if (search.In(result, kSearchedLevels)) {
    return kOutputSearched | kOutputHasGradFn;
  }
  return search.complete() ? kOutputSearched : 0;
}

// "Root" and "training" decide about stages and the step rule, so they are read
// at the begin, before the forward can change them.
uint8_t BeginFlags(ThreadRecorder& thread, PyObject* module) {
  static PyObject* training = PyUnicode_InternFromString("training");
  uint8_t flags = IsRootForward(thread) ? kRootModuleCall : 0;
  if (Attribute(module, training).get() == Py_True) flags |= kModuleTraining;
  return flags;
}

}  // namespace

void PlanForwards(PyObject* callback) {
  ForwardPlan& plan = ForwardPlan::Get();
  Py_XINCREF(callback);
  plan.callback = Ref(callback);
  ++plan.version;
}

// The hot path of a training: one call for each module of a model. The
// questions are ordered by their cost.
PyObject* CallModule(PyObject* object, PyObject* const* arguments,
                     size_t nargsf, PyObject* names) {
  auto* self = reinterpret_cast<Wrapper*>(object);
  ThreadRecorder* thread = CurrentThread();
  // While torch.jit.trace follows the thread, even a question for an attribute
  // would add operations to the user's graph.
  const bool plain = thread == nullptr || thread->in_hook() ||
                     VectorcallArgumentCount(nargsf) < 1 || TorchApi::Tracing();
  Function* forward = plain ? nullptr : ForwardOf(arguments[0]);
  if (forward == nullptr) {
    return PyObject_Vectorcall(self->fn, arguments, nargsf, names);
  }
  const CallArguments given = {arguments, nargsf, names};
  // The wrapper may be replaced, and its last reference go, while it runs.
  Py_INCREF(object);
  const CallInProgress call =
      BeginCall(*thread, *forward, given, BeginFlags(*thread, arguments[0]));
  PyObject* result;
  // Only roots run hooks: a wrapped inner call never enters Python code of the
  // agent.
  if (self->hooks.any() && (call.flags & kRootModuleCall) != 0) {
    result = CallWithHooks(self->fn, given, self->hooks, forward->facts.name);
  } else {
    result = PyObject_Vectorcall(self->fn, arguments, nargsf, names);
  }
  EndCall(call, *forward, result, OutputFlags(result, call.flags));
  Py_DECREF(object);
  return result;
}

}  // namespace traincheck::agent
