// Python's x[key] and `key in x`, with what makes Python raise an error.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_PATH_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_PATH_H_

#include <optional>

#include "invariants/traincheck/conformance/py_value.h"

namespace traincheck {

struct PyLookup {
  std::optional<PyValue> value;
  // Without a value: an IndexError or KeyError, and no TypeError?
  bool missing = false;
};

// x[key] of an object or a list. Keys with one of the prefixes _ML_DAIKON_ and
// _TRAINCHECK_ find the other one, too. Characters of a text are not looked up:
// that counts as an error.
PyLookup PyItem(const PyValue& container, const PyValue& key);

enum class PyContained { kYes, kNo, kError };

PyContained PyContains(const PyValue& container, const PyValue& key);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_PATH_H_
