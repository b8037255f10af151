// libtraincheck_agent.so: preloaded into every process of a job, inert in all
// that are no Python interpreter.
//
// The constructor replaces the init function of the built-in module `_abc` in
// Python's table of built-in modules. That init runs in every interpreter once
// imports work and before any user code, also under -I -E -S; ours then runs
// finder.py, which waits for `import torch` and loads the core.
//
// Plain C over libc. A preload that needs a newer libc, or libstdc++, would
// break every program of an older system: no symbol above GLIBC_2.17
// (preload_symbols_test). All Python symbols are weak: absent, nothing happens.
#include <stdlib.h>
#include <string.h>

#include "agent/preload/finder_text.h"

#define WEAK __attribute__((weak)) extern

typedef struct _object PyObject;
struct _inittab {
  const char* name;
  PyObject* (*initfunc)(void);
};

WEAK struct _inittab* PyImport_Inittab;
WEAK const char* Py_GetVersion(void);
WEAK void Py_DecRef(PyObject*);
WEAK PyObject* PySys_GetObject(const char*);
WEAK PyObject* PyDict_New(void);
WEAK int PyDict_SetItemString(PyObject*, const char*, PyObject*);
WEAK PyObject* PyEval_GetBuiltins(void);
WEAK PyObject* Py_CompileString(const char*, const char*, int);
WEAK PyObject* PyEval_EvalCode(PyObject*, PyObject*, PyObject*);
WEAK void PyErr_Fetch(PyObject**, PyObject**, PyObject**);
WEAK void PyErr_Restore(PyObject*, PyObject*, PyObject*);
WEAK void PyErr_Clear(void);
WEAK PyObject* PyUnicode_FromString(const char*);

enum { kPyFileInput = 257 };  // Py_file_input

static PyObject* (*real_abc_init)(void);

static void RunFinder(void) {
  PyObject* globals = PyDict_New();
  PyObject* name = PyUnicode_FromString("_traincheck_finder");
  PyObject* code =
      Py_CompileString(kFinder[0].text, "<traincheck finder>", kPyFileInput);
  if (globals != NULL && name != NULL && code != NULL &&
      PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) ==
          0 &&
      PyDict_SetItemString(globals, "__name__", name) == 0) {
    PyObject* done = PyEval_EvalCode(code, globals, globals);
    if (done != NULL) Py_DecRef(done);
  }
  if (globals != NULL) Py_DecRef(globals);
  if (name != NULL) Py_DecRef(name);
  if (code != NULL) Py_DecRef(code);
}

// Runs in the interpreter, in place of the init function of `_abc`.
static PyObject* InitAbcAndFinder(void) {
  PyObject* module = real_abc_init();
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (PySys_GetObject("meta_path") != NULL) RunFinder();
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return module;
}

// Python 3.11 or later of the 3 series?
static int IsSupportedPython(void) {
  const char* version = Py_GetVersion();
  return strncmp(version, "3.", 2) == 0 && atoi(version + 2) >= 11;
}

__attribute__((constructor)) static void OnLoad(void) {
  if (&PyImport_Inittab == NULL || PyImport_Inittab == NULL ||
      Py_GetVersion == NULL || Py_CompileString == NULL ||
      PyEval_EvalCode == NULL) {
    return;
  }
  const char* disable = getenv("TRAINCHECK_DISABLE");
  if (disable != NULL && strcmp(disable, "1") == 0) return;
  if (!IsSupportedPython()) return;
  for (struct _inittab* entry = PyImport_Inittab; entry->name != NULL;
       ++entry) {
    if (strcmp(entry->name, "_abc") == 0 && entry->initfunc != NULL) {
      real_abc_init = entry->initfunc;
      entry->initfunc = InitAbcAndFinder;
      return;
    }
  }
}
