// A record as preconditions see it: a row of the table, and what TrainCheck has
// written into its copy of it since.
//
// TrainCheck writes the context managers that are active at the time of an
// example's first record into all records of it, and never takes them out
// again. A later example with one of these records sees them still, and so may
// a later line of the invariant file (semantics, 2.3).
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_TRACE_RECORD_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_TRACE_RECORD_H_

#include <optional>
#include <string>
#include <vector>

#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

// Fields that were written into one copy of a row.
class WrittenFields {
 public:
  void Set(const std::string* name, const PyValue& value) {
    for (PyMember& field : fields_) {
      if (field.key == name) {
        field.value = value;
        return;
      }
    }
    fields_.push_back({name, value});
  }
  // Null: not written. `name` is of the table's pool.
  const PyValue* Find(const std::string* name) const {
    for (const PyMember& field : fields_) {
      if (field.key == name) return &field.value;
    }
    return nullptr;
  }

 private:
  std::vector<PyMember> fields_;
};

// Both must outlive it.
struct TraceRecord {
  const TableRow* row = nullptr;
  WrittenFields* written = nullptr;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_TRACE_RECORD_H_
