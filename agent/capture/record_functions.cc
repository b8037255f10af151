#include <time.h>

#include <string>

#include "agent/capture/agent_settings.h"
#include "agent/capture/argument_parsing.h"
#include "agent/capture/call_site.h"
#include "agent/capture/clock.h"
#include "agent/capture/device_states.h"
#include "agent/capture/events.h"
#include "agent/capture/log.h"
#include "agent/capture/module_functions.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/states.h"

namespace traincheck::agent {
namespace {

constexpr double kDefaultExitWaitSeconds = 2;
constexpr double kMaxExitWaitSeconds = 3600;
constexpr long kPollNs = 1'000'000;

// The pid of the process for which multiprocessing started this one; 0: it did
// not. With forkserver it is not the parent.
uint32_t StartedFor() {
  // Looked up, not imported: what multiprocessing started has the module.
  PyObject* module =
      PyDict_GetItemString(PyImport_GetModuleDict(), "multiprocessing.process");
  const Ref ask = module ? Attribute(module, "parent_process") : Ref();
  const Ref parent(ask ? PyObject_Vectorcall(ask.get(), nullptr, 0, nullptr)
                       : nullptr);
  const Ref pid = parent && parent.get() != Py_None
                      ? Attribute(parent.get(), "pid")
                      : Ref();
  const unsigned long number = pid ? PyLong_AsUnsignedLong(pid.get()) : 0;
  if (PyErr_Occurred() == nullptr) return static_cast<uint32_t>(number);
  DropException();
  return 0;
}

// The hooks say what the process is as soon as they know it: a main process, a
// loader's worker, something else.
PyObject* SetProcessKind(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"kind", "worker_id", "pass_seed",
                                      nullptr};
  unsigned int kind, worker_id = 0;
  unsigned long long seed = 0;
  if (!Parse(args, kwargs, "I|IK", names, &kind, &worker_id, &seed)) {
    return nullptr;
  }
  if (ProcessRecorder* process = ProcessRecorder::Get()) {
    const auto made = static_cast<ProcessKind>(kind);
    // Only a worker has a pass. Its seed may be 0, so a process without one has
    // none.
    process->SetKind(made, worker_id, StartedFor(),
                     made == ProcessKind::kWorker
                         ? std::optional<uint64_t>(seed)
                         : std::nullopt);
  }
  return None();
}

PyObject* RecordPlaceFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"rank",   "world_size", "local_rank",
                                      "source", "start",      nullptr};
  PlaceRecord place = {};
  const char* start = "";
  if (!Parse(args, kwargs, "iiiIs", names, &place.rank, &place.world_size,
             &place.local_rank, &place.source, &start)) {
    return nullptr;
  }
  RecordPlace(place, start);
  return None();
}

// The loop over all variables of a state point runs in C++: one call for each
// point.
PyObject* RecordStatesFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"point", "what", "variables", "tensors",
                                      nullptr};
  unsigned char point;
  int what;
  PyObject *sequence, *tensors;
  std::vector<uint32_t> variables;
  if (!Parse(args, kwargs, "biOO", names, &point, &what, &sequence, &tensors) ||
      !Numbers(sequence, &variables)) {
    return nullptr;
  }
  const bool done =
      RecordStates(static_cast<StatePoint>(point), what, variables, tensors);
  return done ? None() : nullptr;
}

PyObject* RecordScalarFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"obj",  "point", "group",
                                      "name", "value", nullptr};
  unsigned int object;
  unsigned char point;
  unsigned short group;
  const char* name;
  double value;
  if (!Parse(args, kwargs, "IbHsd", names, &object, &point, &group, &name,
             &value)) {
    return nullptr;
  }
  RecordScalar(object, static_cast<StatePoint>(point), group, name, value);
  return None();
}

PyObject* SiteAtFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"file", "line", "function", nullptr};
  const char* file;
  unsigned int line;
  const char* function;
  if (!Parse(args, kwargs, "sIs", names, &file, &line, &function)) {
    return nullptr;
  }
  return PyLong_FromUnsignedLong(CallSites::At(file, line, function));
}

PyObject* SiteHereFunction(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLong(CallSites::Get().Here());
}

PyObject* RecordMarkFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"kind", "obj", "value", nullptr};
  unsigned char kind;
  unsigned int object;
  unsigned long long value;
  if (!Parse(args, kwargs, "bIK", names, &kind, &object, &value)) {
    return nullptr;
  }
  RecordMark(static_cast<MarkKind>(kind), object, value);
  return None();
}

PyObject* RecordContextFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"enter", "name", "arguments", nullptr};
  int enter;
  const char* name;
  PyObject* arguments = nullptr;
  if (!Parse(args, kwargs, "ps|O", names, &enter, &name, &arguments)) {
    return nullptr;
  }
  RecordContext(enter != 0, name, arguments);
  return None();
}

PyObject* RecordCollectiveFunction(PyObject*, PyObject* args,
                                   PyObject* kwargs) {
  static const char* const names[] = {"group", "sequence", nullptr};
  unsigned int group;
  unsigned long long sequence;
  if (!Parse(args, kwargs, "IK", names, &group, &sequence)) return nullptr;
  RecordCollective(group, sequence);
  return None();
}

// An event of the step rule about an object, which the hook passes by its
// number.
template <bool (*event)(uint32_t)>
PyObject* StepOf(PyObject*, PyObject* value) {
  const unsigned long number = PyLong_AsUnsignedLong(value);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return PyBool_FromLong(event(static_cast<uint32_t>(number)));
}

template <bool (*event)()>
PyObject* Step(PyObject*, PyObject*) {
  return PyBool_FromLong(event());
}

template <void (*event)()>
PyObject* Tell(PyObject*, PyObject*) {
  event();
  return None();
}

PyObject* LogOnceFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"key", "message", nullptr};
  const char *key, *message;
  if (!Parse(args, kwargs, "ss", names, &key, &message)) return nullptr;
  LogOnce(key, message);
  return None();
}

PyObject* SettingFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"name", nullptr};
  const char* name;
  if (!Parse(args, kwargs, "s", names, &name)) return nullptr;
  const std::string value = SettingOf(name);
  // As os.environ does: a value may be no UTF-8.
  return PyUnicode_DecodeFSDefaultAndSize(
      value.data(), static_cast<Py_ssize_t>(value.size()));
}

// A wrong setting is reported and the default holds: at the end of a training
// nothing may fail because of it.
double ExitWaitSeconds() {
  const std::string text = SettingOf("TRAINCHECK_EXIT_WAIT");
  if (text.empty()) return kDefaultExitWaitSeconds;
  const double seconds = PyOS_string_to_double(text.c_str(), nullptr, nullptr);
  // Written so that NaN is refused, too.
  if (PyErr_Occurred() != nullptr || !(seconds >= 0)) {
    DropException();
    LogOnce("exit wait", "TRAINCHECK_EXIT_WAIT is not a number of seconds");
    return kDefaultExitWaitSeconds;
  }
  return seconds < kMaxExitWaitSeconds ? seconds : kMaxExitWaitSeconds;
}

// Waits until the relay holds everything, at most `seconds`, or until the relay
// dies. What is still in the rings when process and relay end together is lost.
void WaitUntilSettled(double seconds) {
  ProcessRecorder* process = ProcessRecorder::GetIfMade();
  if (process == nullptr) return;
  const uint64_t deadline_ns =
      MonotonicNs() + static_cast<uint64_t>(seconds * 1e9);
  while (!process->Settled() && MonotonicNs() < deadline_ns) {
    // Daemon threads still run and record.
    PyThreadState* thread = PyEval_SaveThread();
    const timespec pause = {0, kPollNs};
    nanosleep(&pause, nullptr);
    PyEval_RestoreThread(thread);
  }
}

PyObject* RecordUncleanExitFunction(PyObject*, PyObject* exception) {
  RecordUncleanExit(exception);
  return None();
}

// The digests that devices still compute.
PyObject* FinishStates(PyObject*, PyObject*) {
  if (ProcessRecorder::GetIfMade() != nullptr) {
    // Before the flush: what comes is records that have to go as well.
    DeviceStates::Get().Finish(ExitWaitSeconds());
  }
  return None();
}

PyObject* ExitFlush(PyObject*, PyObject*) {
  WaitUntilSettled(ExitWaitSeconds());
  return None();
}

}  // namespace

PyMethodDef kRecordFunctions[] = {
    WithKeywords("set_process_kind", SetProcessKind),
    WithKeywords("record_place", RecordPlaceFunction),
    WithKeywords("record_states", RecordStatesFunction),
    WithKeywords("record_scalar", RecordScalarFunction),
    WithKeywords("site_at", SiteAtFunction),
    {"site_here", SiteHereFunction, METH_NOARGS, nullptr},
    WithKeywords("record_mark", RecordMarkFunction),
    {"record_unclean_exit", RecordUncleanExitFunction, METH_O, nullptr},
    WithKeywords("record_context", RecordContextFunction),
    WithKeywords("record_collective", RecordCollectiveFunction),
    {"step_optimizer", StepOf<StepOptimizer>, METH_O, nullptr},
    {"step_optimizer_made", Tell<StepOptimizerMade>, METH_NOARGS, nullptr},
    {"step_batch_fetched", StepOf<StepBatchFetched>, METH_O, nullptr},
    {"step_iterator_end", StepOf<StepIteratorEnd>, METH_O, nullptr},
    {"step_grad_clear", Step<StepGradClear>, METH_NOARGS, nullptr},
    {"step_training_forward", Step<StepTrainingForward>, METH_NOARGS, nullptr},
    {"step_backward", Tell<StepBackward>, METH_NOARGS, nullptr},
    {"step_user", Step<StepUser>, METH_NOARGS, nullptr},
    {"step_end", Step<StepEnd>, METH_NOARGS, nullptr},
    {"step_exit", Step<StepExit>, METH_NOARGS, nullptr},
    WithKeywords("log_once", LogOnceFunction),
    WithKeywords("setting", SettingFunction),
    {"finish_states", FinishStates, METH_NOARGS, nullptr},
    {"exit_flush", ExitFlush, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
