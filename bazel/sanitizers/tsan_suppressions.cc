// What ThreadSanitizer keeps to itself, in the program: a process that tests
// start does not inherit their environment.
#include "bazel/sanitizers/suppressions.h"

extern "C" const char* __tsan_default_suppressions() {
  return kSuppressions[0].text;
}
