#include "agent/capture/argument_parsing.h"
#include "agent/capture/module_functions.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/rank_sign.h"
#include "agent/capture/run_name.h"

namespace traincheck::agent {
namespace {

PyObject* RankIsInherited(PyObject*, PyObject*) {
  return PyBool_FromLong(InheritsRank(System::Real()));
}

// The name that the ranks may still replace by one that they agree on; None: it
// is final.
PyObject* ProvisionalRun(PyObject*, PyObject*) {
  const ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr || !process->identity().run_is_provisional) {
    return None();
  }
  return PyUnicode_FromString(process->identity().run.c_str());
}

PyObject* SettleRun(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"run", nullptr};
  const char* run = "";
  if (!Parse(args, kwargs, "|s", names, &run)) return nullptr;
  if (ProcessRecorder* process = ProcessRecorder::Get()) {
    process->SettleRun(AsRunName(run));
  }
  return None();
}

// Called when the process knows its rank, so that processes below it can find
// it.
PyObject* ShowRank(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"rank", "world_size", nullptr};
  int rank, world_size;
  if (!Parse(args, kwargs, "ii", names, &rank, &world_size)) return nullptr;
  if (const ProcessRecorder* process = ProcessRecorder::Get()) {
    PutUpRankSign(std::to_string(rank) + "/" + std::to_string(world_size),
                  process->identity().run);
  }
  return None();
}

}  // namespace

PyMethodDef kIdentityFunctions[] = {
    {"rank_is_inherited", RankIsInherited, METH_NOARGS, nullptr},
    {"provisional_run", ProvisionalRun, METH_NOARGS, nullptr},
    WithKeywords("settle_run", SettleRun),
    WithKeywords("show_rank", ShowRank),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
