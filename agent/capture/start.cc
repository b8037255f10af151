#include "agent/capture/start.h"

#include <cstdlib>
#include <string>

#include "agent/capture/agent_settings.h"
#include "agent/capture/bootstrap_source.h"
#include "agent/capture/call_site.h"
#include "agent/capture/hooks_code.h"
#include "agent/capture/hooks_source.h"
#include "agent/capture/log.h"
#include "agent/capture/process_recorder.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/tensor_shim.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

std::string FolderOf(std::string_view path) {
  return std::string(path.substr(0, path.rfind('/')));
}

// TRAINCHECK_AGENT_DIR names another folder of the relay's program than that of
// the core.
std::string AgentFolder(PyObject* core_module) {
  const char* given = std::getenv("TRAINCHECK_AGENT_DIR");
  if (given != nullptr && *given != '\0') return given;
  return FolderOf(Utf8(Attribute(core_module, "__file__").get()));
}

PyObject* LoadedModule(const char* name) {  // borrowed
  return PyDict_GetItemString(PyImport_GetModuleDict(), name);
}

// Below the folder of this module lies library code.
void LearnLibraryFolder(const char* module_name) {
  PyObject* module = LoadedModule(module_name);
  if (module == nullptr) return;
  const Ref file = Attribute(module, "__file__");
  CallSites::Get().rules().AddLibraryFolder(FolderOf(Utf8(file.get())));
}

// name -> source, for a Python other than that of the build.
Ref HookSources() {
  Ref sources(PyDict_New());
  for (const EmbeddedText* hook = kHookSources; sources && hook->name; ++hook) {
    const Ref text(PyUnicode_FromString(hook->text));
    if (!text) return Ref();
    PyDict_SetItemString(sources.get(), hook->name, text.get());
  }
  return sources;
}

// (magic number of the Python that it is for, name -> marshalled code)
Ref HookCode() {
  Ref codes(PyDict_New());
  for (const EmbeddedCode* hook = kHookCode; codes && hook->name; ++hook) {
    const Ref code(PyBytes_FromStringAndSize(
        hook->bytes, static_cast<Py_ssize_t>(hook->size)));
    if (!code) return Ref();
    PyDict_SetItemString(codes.get(), hook->name, code.get());
  }
  const Ref magic(PyBytes_FromStringAndSize(
      reinterpret_cast<const char*>(kHookCodeMagic), sizeof kHookCodeMagic));
  if (!codes || !magic) return Ref();
  return Ref(PyTuple_Pack(2, magic.get(), codes.get()));
}

// Runs bootstrap.py, which makes the hooks' modules and starts them. False: an
// exception is set.
bool RunHooks(PyObject* core_module) {
  const Ref globals(PyDict_New());
  // Compiled code is for the Python of the build alone; any other version
  // compiles the sources.
  const Ref sources = HookSources();
  const Ref compiled = HookCode();
  const Ref code(Py_CompileString(kBootstrapSource[0].text,
                                  "<traincheck/bootstrap>", Py_file_input));
  if (!globals || !sources || !compiled || !code) return false;
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  const Ref defined(PyEval_EvalCode(code.get(), globals.get(), globals.get()));
  PyObject* run = PyDict_GetItemString(globals.get(), "run");
  if (!defined || run == nullptr) return false;
  PyObject* const arguments[] = {core_module, sources.get(), compiled.get()};
  const Ref done(PyObject_Vectorcall(run, arguments, 3, nullptr));
  return static_cast<bool>(done);
}

// "hooks/ddp, line 12: " of the innermost frame of the traceback.
std::string Place(PyObject* exception) {
  Ref traceback = Attribute(exception, "__traceback__");
  std::string place;
  while (traceback && traceback.get() != Py_None) {
    const Ref frame = Attribute(traceback.get(), "tb_frame");
    const Ref code = frame ? Attribute(frame.get(), "f_code") : Ref();
    const Ref file = code ? Attribute(code.get(), "co_filename") : Ref();
    const Ref line = Attribute(traceback.get(), "tb_lineno");
    place = std::string(Utf8(file.get()));
    if (line) {
      place += ", line " + std::to_string(PyLong_AsLong(line.get())) + ": ";
    }
    traceback = Attribute(traceback.get(), "tb_next");
  }
  return place;
}

// The training goes on without being recorded: nothing here may stop it.
void TurnOff(const std::string& why) {
  SetRecording(false);
  LogLine("recording is off: " + why);
}

// The hooks mark errors of the user's settings by an attribute `for_users`.
void TurnOffBecauseOfException() {
  SavedException saved;
  PyObject* exception = saved.Normalized();
  std::string why = "an unknown error";
  if (exception != nullptr) {
    const Ref text(PyObject_Str(exception));
    why = Utf8(text.get());
    // What the user has written wrong needs no place in our code.
    if (!Attribute(exception, "for_users")) {
      why = Place(exception) + QualifiedTypeName(saved.type()) + ": " + why;
    }
  }
  saved.Forget();
  DropException();
  TurnOff(why);
}

}  // namespace

// Before anything can be recorded: forks from here on are seen.
void SetUp(PyObject* core_module) {
  const std::string python = Py_GetVersion();
  AgentSetup setup;
  setup.folder = AgentFolder(core_module);
  setup.python_version = python.substr(0, python.find(' '));
  if (PyObject* torch = LoadedModule("torch")) {
    setup.torch_version = Utf8(Attribute(torch, "__version__").get());
  }
  SetUpAgent(setup);
  LearnLibraryFolder("os");  // the standard library
}

bool BindTorch() {
  PyObject* torch = LoadedModule("torch");
  const std::string missing =
      torch == nullptr ? "torch, which is not imported" : TorchApi::Bind(torch);
  if (!missing.empty()) {
    TurnOff("there is no " + missing);
    return false;
  }
  // Without the shim everything is recorded all the same, only more slowly.
  const std::string slow = TensorShim::Bind(torch);
  if (!slow.empty()) {
    LogOnce("tensor shim",
            "slow tensor access with this torch version: " + slow);
  }
  LearnLibraryFolder("torch");
  return true;
}

// Called at the end of `import torch`, with the GIL.
void Start(PyObject* core_module) {
  // First of all: the settings may say that nothing is to be done.
  const std::string wrong = LoadSettings();
  if (!wrong.empty()) {
    TurnOff(wrong);
  } else if (SettingOf("TRAINCHECK_DISABLE") == "1") {
    // Somebody wants it so: no line says that recording is off.
    SetRecording(false);
  } else if (BindTorch() && !RunHooks(core_module)) {
    TurnOffBecauseOfException();
  }
}

}  // namespace traincheck::agent
