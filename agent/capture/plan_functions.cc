// The capture plan's part of the module: what is recorded, and when.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/capture/argument_parsing.h"
#include "agent/capture/call_content.h"
#include "agent/capture/capture_mode.h"
#include "agent/capture/content_spec.h"
#include "agent/capture/device_states.h"
#include "agent/capture/events.h"
#include "agent/capture/module_call.h"
#include "agent/capture/module_functions.h"
#include "agent/capture/own_time.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/wrapper.h"
#include "agent/capture/zoom.h"

namespace traincheck::agent {
namespace {

// Null with an exception set: it is no wrapper of a function.
Function* FunctionOf(PyObject* wrapper) {
  Function* function = IsWrapper(wrapper)
                           ? reinterpret_cast<Wrapper*>(wrapper)->function
                           : nullptr;
  if (function == nullptr) {
    PyErr_SetString(PyExc_TypeError, "this is not a wrapper of a function");
  }
  return function;
}

PyObject* SetContentFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"wrapper", "content", nullptr};
  PyObject *wrapper, *content;
  if (!Parse(args, kwargs, "OO", names, &wrapper, &content)) return nullptr;
  Function* function = FunctionOf(wrapper);
  if (function == nullptr) return nullptr;
  return SetContent(content, function) ? None() : nullptr;
}

// None takes the plan for forwards back.
PyObject* PlanForwardsFunction(PyObject*, PyObject* callback) {
  PlanForwards(callback == Py_None ? nullptr : callback);
  return None();
}

PyObject* SwitchFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"wrapper", "active", nullptr};
  PyObject* wrapper;
  int active;
  if (!Parse(args, kwargs, "Op", names, &wrapper, &active)) return nullptr;
  Function* function = FunctionOf(wrapper);
  if (function == nullptr) return nullptr;
  // The skeleton stays on: steps, stages and state are derived from it.
  if (function->detail) function->active = active != 0;
  return None();
}

// Marks whether calls of a wrapped function are recorded from here on: without
// it, a call that was not recorded would look like one that was not made.
PyObject* TellSwitchFunction(PyObject*, PyObject* wrapper) {
  Function* function = FunctionOf(wrapper);
  if (function == nullptr) return nullptr;
  const MarkKind kind =
      function->active ? MarkKind::kFunctionOn : MarkKind::kFunctionOff;
  // Without a definition nobody would know which function the mark is about.
  if (const uint32_t id = FunctionId(*function); id != 0) {
    RecordMark(kind, 0, id);
  }
  return None();
}

// The hooks decide at each step's end what the next step records.
PyObject* SetCaptureFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"mode", "turns", "step", nullptr};
  unsigned char mode;
  unsigned int turns = 1;
  unsigned long long step = 0;
  if (!Parse(args, kwargs, "b|IK", names, &mode, &turns, &step)) return nullptr;
  if (mode > kMaxCaptureMode) {
    PyErr_SetString(PyExc_ValueError, "set_capture: no such mode");
    return nullptr;
  }
  const auto capture = static_cast<CaptureMode>(mode);
  // After the mode is off, no record can carry what devices still compute.
  if (capture == CaptureMode::kOff) DeviceStates::Get().GiveUp();
  SetCaptureMode(capture);
  g_rotation = {turns, step};
  return None();
}

// None, or (version, first step, JSON).
PyObject* NextPlanFunction(PyObject*, PyObject*) {
  ProcessRecorder* process = ProcessRecorder::GetIfMade();
  const auto change = process == nullptr ? std::nullopt : process->TakePlan();
  if (!change) return None();
  return Py_BuildValue("KKy#", static_cast<unsigned long long>(change->version),
                       static_cast<unsigned long long>(change->from_step),
                       change->json.data(),
                       static_cast<Py_ssize_t>(change->json.size()));
}

PyObject* ZoomInOnFunction(PyObject*, PyObject* variables) {
  std::vector<std::string> names;
  if (!Texts(variables, &names)) return nullptr;
  ZoomInOn(names);
  return None();
}

PyObject* OpenStepFunction(PyObject*, PyObject*) {
  ProcessRecorder* process = ProcessRecorder::GetIfMade();
  return PyLong_FromUnsignedLongLong(
      process == nullptr ? 0 : process->closed_steps());
}

// (time of the agent, time of all) so far, in ticks. The hooks compare the
// quotient with the allowed overhead.
PyObject* TimesFunction(PyObject*, PyObject*) {
  return Py_BuildValue("KK", static_cast<unsigned long long>(g_own_ticks),
                       static_cast<unsigned long long>(Ticks()));
}

PyObject* EndPeriodFunction(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(DeviceStates::Get().EndPeriod());
}

PyObject* DeviceTimeFunction(PyObject*, PyObject* period) {
  const unsigned long long number = PyLong_AsUnsignedLongLong(period);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const auto ticks = DeviceStates::Get().TakeTicks(number);
  return ticks ? PyLong_FromUnsignedLongLong(*ticks) : None();
}

// For hooks that no wrapper runs. 0 within one that is timed already.
PyObject* HookBeginsFunction(PyObject*, PyObject*) {
  const bool timed = t_thread != nullptr && t_thread->in_hook();
  return PyLong_FromUnsignedLongLong(timed ? 0 : Ticks());
}

PyObject* HookEndsFunction(PyObject*, PyObject* begin) {
  const unsigned long long ticks = PyLong_AsUnsignedLongLong(begin);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (ticks != 0) g_own_ticks += Ticks() - ticks;
  return None();
}

}  // namespace

PyMethodDef kPlanFunctions[] = {
    WithKeywords("set_content", SetContentFunction),
    {"plan_forwards", PlanForwardsFunction, METH_O, nullptr},
    WithKeywords("switch", SwitchFunction),
    {"tell_switch", TellSwitchFunction, METH_O, nullptr},
    WithKeywords("set_capture", SetCaptureFunction),
    {"next_plan", NextPlanFunction, METH_NOARGS, nullptr},
    {"zoom_in_on", ZoomInOnFunction, METH_O, nullptr},
    {"open_step", OpenStepFunction, METH_NOARGS, nullptr},
    {"times", TimesFunction, METH_NOARGS, nullptr},
    {"end_period", EndPeriodFunction, METH_NOARGS, nullptr},
    {"device_time", DeviceTimeFunction, METH_O, nullptr},
    {"hook_begins", HookBeginsFunction, METH_NOARGS, nullptr},
    {"hook_ends", HookEndsFunction, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
