// What ThreadSanitizer keeps to itself, in the program: a process that tests
// start does not inherit their environment.
#include "bazel/sanitizers/suppressions.h"

extern "C" const char* __tsan_default_suppressions() {
  return kSuppressions[0].text;
}

// Suppressions go by the stacks of both accesses: the earlier one is remembered
// for as long as can be.
extern "C" const char* __tsan_default_options() { return "history_size=7"; }
