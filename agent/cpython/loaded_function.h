// Functions of libraries that the process has loaded, found through the
// interpreter: the C library's own dlopen would tie the core to its version.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CPYTHON_LOADED_FUNCTION_H_
#define TRAINCHECK_AGENT_CPYTHON_LOADED_FUNCTION_H_

namespace traincheck::agent {

// Null: no library of this name is loaded, or it has no such function. Loads
// nothing, raises nothing.
void* LoadedFunction(const char* library, const char* name);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CPYTHON_LOADED_FUNCTION_H_
