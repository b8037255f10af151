// Starts the agent once torch has been imported: reads its settings, binds
// torch, learns which code is library code, runs the embedded hooks. Whatever
// fails is one line on stderr, and recording is off.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_START_H_
#define TRAINCHECK_AGENT_CAPTURE_START_H_

#include "agent/cpython/python_api.h"

namespace traincheck::agent {

// Tells ProcessRecorder where it is; when the module is made.
void SetUp(PyObject* core_module);

// Start reads the settings and does both steps; BindTorch alone is enough for
// recording without hooks. False: recording is off.
bool BindTorch();
void Start(PyObject* core_module);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_START_H_
