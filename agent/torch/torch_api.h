// What the agent uses of torch, through Python's C API only: one binary serves
// every torch from 2.4 on. Bound once, after torch has been imported; unbound,
// every question has its neutral answer.
//
// Nothing here changes tensors, versions, autograd, generators or modes.
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_TORCH_TORCH_API_H_
#define TRAINCHECK_AGENT_TORCH_TORCH_API_H_

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

class TorchApi {
 public:
  // "": done; else what this torch lacks.
  [[nodiscard]] static std::string Bind(PyObject* torch);

  static bool GradEnabled();
  // Does a backward run on this thread?
  static bool InGraphTask();
  // Does torch.jit.trace, or an export by it, follow this thread? Even to ask a
  // tensor for its shape adds operations to the graph then.
  static bool Tracing();

  // A tensor of any class?
  static bool IsTensor(PyObject* value);
  // A tensor whose class keeps its bytes where a plain tensor does, and not
  // behind a __torch_dispatch__ of its own (DTensor, FakeTensor, ...)?
  static bool IsPlainTensor(PyObject* value);
  // torch.strided?
  static bool IsStrided(PyObject* layout);

  // While it lives, attributes of tensors are read directly: no
  // __torch_function__ of a subclass or a mode runs. On this thread only.
  class WithoutOverrides {
   public:
    WithoutOverrides();
    ~WithoutOverrides();
    WithoutOverrides(const WithoutOverrides&) = delete;
    WithoutOverrides& operator=(const WithoutOverrides&) = delete;

   private:
    Ref guard_;
  };

 private:
  static TorchApi& Get();

  // A function of torch without arguments that is asked at every call: called
  // by its C function where it is one, which saves half of the time.
  class Question {
   public:
    Question() = default;
    explicit Question(Ref function);
    explicit operator bool() const { return static_cast<bool>(function_); }
    // None without an exception if there is no answer.
    Ref Ask() const;

   private:
    Ref function_;
    PyCFunction c_function_ = nullptr;
    PyObject* c_self_ = nullptr;  // borrowed from function_
  };

  // torch::jit::tracer::getTracingState(): its result begins with a pointer,
  // which is null where nothing is traced.
  using TracingState = void* const* (*)();

  Question is_grad_enabled_;
  Question current_graph_task_id_;
  TracingState tracing_state_ = nullptr;  // null: ask the next one
  Question get_tracing_state_;
  Ref disable_torch_function_;
  Ref tensor_type_;
  Ref plain_dispatch_;
  Ref strided_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_TORCH_API_H_
