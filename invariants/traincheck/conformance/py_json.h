// JSON as Python's json module writes and reads it: beside JSON proper the
// numbers NaN, Infinity and -Infinity, and integers of any size.
//
// Threads: pure function over its pool.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_JSON_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "invariants/traincheck/conformance/py_value.h"

namespace traincheck {

// InvalidArgument says what is wrong, with the byte: no JSON, nested deeper
// than 64.
[[nodiscard]] absl::StatusOr<PyValue> ParsePyJsonUntrusted(
    absl::string_view text, PyPool* pool);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_JSON_H_
