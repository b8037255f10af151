// The extension module traincheck_core: its table of names. The only symbol
// that this library exports is the one that Python looks for.
#include "agent/capture/module_functions.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/start.h"
#include "agent/capture/states.h"
#include "agent/capture/version.h"
#include "agent/capture/wrapper.h"
#include "agent/cpython/python_ref.h"
#include "proto/record_format.h"

namespace traincheck::agent {
namespace {

struct Constant {
  const char* name;
  int value;
};

template <typename Enum>
constexpr Constant Of(const char* name, Enum value) {
  return {name, static_cast<int>(value)};
}

// The hooks' names for numbers of the record format, which are written down in
// record_format.h alone.
constexpr Constant kConstants[] = {
    Of("POINT_CONSTRUCTION", StatePoint::kConstruction),
    Of("POINT_WRAP_END", StatePoint::kWrapEnd),
    Of("POINT_FORWARD_BEGIN", StatePoint::kForwardBegin),
    Of("POINT_BACKWARD_END", StatePoint::kBackwardEnd),
    Of("POINT_PRE_CLIP", StatePoint::kPreClip),
    Of("POINT_POST_CLIP", StatePoint::kPostClip),
    Of("POINT_PRE_STEP", StatePoint::kPreStep),
    Of("POINT_POST_STEP", StatePoint::kPostStep),
    Of("POINT_GRAD_CLEAR", StatePoint::kGradClear),
    Of("POINT_STEP_END", StatePoint::kStepEnd),
    Of("POINT_SAVE", StatePoint::kSave),
    Of("POINT_LOAD", StatePoint::kLoad),
    Of("POINT_STATE_DICT", StatePoint::kStateDict),
    Of("POINT_LOAD_STATE_DICT", StatePoint::kLoadStateDict),
    Of("POINT_FETCH", StatePoint::kFetch),
    Of("POINT_WORKER_INIT", StatePoint::kWorkerInit),
    Of("POINT_FORWARD_END", StatePoint::kForwardEnd),
    Of("MARK_ITERATOR_CREATED", MarkKind::kIteratorCreated),
    Of("MARK_BATCH_FETCHED", MarkKind::kBatchFetched),
    Of("MARK_ITERATOR_EXHAUSTED", MarkKind::kIteratorExhausted),
    Of("MARK_ITERATOR_ABANDONED", MarkKind::kIteratorAbandoned),
    Of("MARK_CLEAN_EXIT", MarkKind::kCleanExit),
    Of("MARK_USER_STEP", MarkKind::kUserStep),
    Of("MARK_USER_STAGE", MarkKind::kUserStage),
    Of("MARK_STEP_SKIPPED", MarkKind::kStepSkipped),
    Of("SKIPPED_BY_SCALER", SkippedStep::kByScaler),
    Of("SKIPPED_MADE_BY_OTHER_RANKS", SkippedStep::kMadeByOtherRanks),
    Of("MARK_PLAN_APPLIED", MarkKind::kPlanApplied),
    Of("MARK_OPTIMIZER_STEPS", MarkKind::kOptimizerSteps),
    Of("CAPTURE_OFF", CaptureMode::kOff),
    Of("CAPTURE_ALL", CaptureMode::kAll),
    Of("CAPTURE_SKELETON", CaptureMode::kSkeleton),
    Of("USER_STAGE_NONE", UserStage::kNone),
    Of("USER_STAGE_INIT", UserStage::kInit),
    Of("USER_STAGE_TRAINING", UserStage::kTraining),
    Of("USER_STAGE_EVALUATION", UserStage::kEvaluation),
    Of("OBJECT_MODULE", ObjectKind::kModule),
    Of("OBJECT_OPTIMIZER", ObjectKind::kOptimizer),
    Of("OBJECT_LOADER", ObjectKind::kLoader),
    Of("OBJECT_OTHER", ObjectKind::kOther),
    Of("VARIABLE_PARAMETER", VariableKind::kParameter),
    Of("VARIABLE_BUFFER", VariableKind::kBuffer),
    Of("VARIABLE_OPTIMIZER_STATE", VariableKind::kOptimizerState),
    Of("VARIABLE_GENERATOR", VariableKind::kGenerator),
    Of("VARIABLE_LOADER_STATE", VariableKind::kLoaderState),
    Of("VARIABLE_INPUTS", VariableKind::kInputs),
    Of("PROCESS_MAIN", ProcessKind::kMain),
    Of("PROCESS_WORKER", ProcessKind::kWorker),
    Of("PROCESS_OTHER", ProcessKind::kOther),
    Of("PLACE_SINGLE", PlaceSource::kSingle),
    Of("PLACE_ENVIRONMENT", PlaceSource::kEnvironment),
    Of("PLACE_PROCESS_GROUP", PlaceSource::kProcessGroup),
    Of("STATE_DATA", kStateData),
    Of("STATE_GRAD", kStateGrad),
    Of("STATE_DATA_STATISTICS", kStateDataStatistics),
    Of("STATE_GRAD_STATISTICS", kStateGradStatistics),
    Of("STATE_DATA_ROWS", kStateDataRows),
    Of("STATE_GRAD_ROWS", kStateGradRows),
};

PyObject* StartFunction(PyObject* module, PyObject*) {
  Start(module);
  Py_INCREF(Py_None);
  return Py_None;
}

// For tests: what start() does, without the hooks.
PyObject* BindTorchFunction(PyObject*, PyObject*) {
  return PyBool_FromLong(BindTorch());
}

// For tests and benchmarks; hooks never turn recording on or off.
PyObject* SetRecordingFunction(PyObject*, PyObject* on) {
  SetRecording(PyObject_IsTrue(on) == 1);
  Py_INCREF(Py_None);
  return Py_None;
}

PyMethodDef kModuleFunctions[] = {
    {"start", StartFunction, METH_NOARGS, nullptr},
    {"bind_torch", BindTorchFunction, METH_NOARGS, nullptr},
    {"set_recording", SetRecordingFunction, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// Executed when Python imports the module. Nothing is wrapped before start().
int Execute(PyObject* module) {
  if (!ReadyWrapperType()) return -1;
  for (PyMethodDef* functions :
       {kModuleFunctions, kWrapFunctions, kPlanFunctions, kDefineFunctions,
        kIdentityFunctions, kRecordFunctions, kContentFunctions,
        kDeviceFunctions, kPartFunctions}) {
    if (PyModule_AddFunctions(module, functions) != 0) return -1;
  }
  for (const Constant& constant : kConstants) {
    if (PyModule_AddIntConstant(module, constant.name, constant.value) != 0) {
      return -1;
    }
  }
  PyModule_AddStringConstant(module, "__version__", kAgentVersion);
  SetUp(module);
  return 0;
}

PyModuleDef_Slot kSlots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(Execute)},
    {0, nullptr},
};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT,
    "traincheck_core",
    nullptr,
    0,
    nullptr,
    kSlots,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace
}  // namespace traincheck::agent

PyMODINIT_FUNC PyInit_traincheck_core() {
  return PyModuleDef_Init(&traincheck::agent::kModule);
}
