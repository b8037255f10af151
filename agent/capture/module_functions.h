// The functions of the extension module, as agent/python/traincheck_core.pyi
// describes them. Wrong arguments raise TypeError, which the hook behind which
// they are called swallows and logs.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_MODULE_FUNCTIONS_H_
#define TRAINCHECK_AGENT_CAPTURE_MODULE_FUNCTIONS_H_

#include "agent/cpython/python_api.h"

namespace traincheck::agent {

// wrap, wrap_module_call, type_modified, is_wrapper, is_users.
extern PyMethodDef kWrapFunctions[];
// set_content, plan_forwards.
extern PyMethodDef kPlanFunctions[];
// object_id, define_*, storage_key.
extern PyMethodDef kDefineFunctions[];
// rank_is_inherited, provisional_run, settle_run, show_rank.
extern PyMethodDef kIdentityFunctions[];
// set_process_kind, record_*, step_*, log_once, setting, exit_flush.
extern PyMethodDef kRecordFunctions[];
// content_of, changed_parts, collect_parameters, addresses, code_place.
extern PyMethodDef kPartFunctions[];
// record_bytes, record_checkpoint, digests.
extern PyMethodDef kContentFunctions[];
// cpu_is_device, copy_to_host, copies.
extern PyMethodDef kDeviceFunctions[];

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_MODULE_FUNCTIONS_H_
