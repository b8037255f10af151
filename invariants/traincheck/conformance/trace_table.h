// A trace as TrainCheck's checker holds it: one wide table of all lines of all
// files, with a column for each field that any line has (semantics, 1.2 and
// 1.5, steps 1, 2 and 4).
//
// Fields of nested objects are columns with dots in their names
// ("meta_vars.step", "attributes.data"); args, kwargs and return_values stay
// whole.
//
// Threads: one object, one thread at a time. Rows and columns live as long as
// the table.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_TRACE_TABLE_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_TRACE_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "invariants/traincheck/conformance/py_value.h"
#include "invariants/traincheck/trace_line.h"

namespace traincheck {

struct TableColumn {
  const std::string* name = nullptr;
  // "data" of "attributes.data"; null: no attribute whose states are followed
  // (1.6).
  const std::string* attribute = nullptr;
};

struct TableField {
  uint32_t column = 0;
  PyValue value;
};

// A process and one of its threads.
using TableThread = std::pair<int64_t, int64_t>;

struct TableRow {
  TraceLineKind kind = TraceLineKind::kState;
  int64_t pid = 0;
  int64_t thread = 0;
  int64_t time = 0;  // nanoseconds
  // Of calls; else null.
  const std::string* call = nullptr;
  const std::string* function = nullptr;
  std::vector<TableField> fields;  // all of them, those above among them
  uint32_t file = 0;
  uint32_t line = 0;  // from 1

  TableThread in() const { return {pid, thread}; }
};

class TraceTable {
 public:
  // NotFound: no such folder, or no trace in it. InvalidArgument names file,
  // line and what is wrong: TrainCheck reads a trace whole or not at all.
  static absl::StatusOr<std::unique_ptr<TraceTable>> ReadUntrusted(
      const std::string& folder);
  TraceTable(const TraceTable&) = delete;
  TraceTable& operator=(const TraceTable&) = delete;

  // In the order of the files and of the lines in them.
  const std::vector<TableRow>& rows() const { return rows_; }
  const std::vector<TableColumn>& columns() const { return columns_; }
  const std::vector<std::string>& files() const { return files_; }
  PyPool& pool() { return pool_; }

  // Nullopt: no line has it. A name with one of the prefixes _ML_DAIKON_ and
  // _TRAINCHECK_ finds the column with the other one, too.
  std::optional<uint32_t> Column(absl::string_view name) const;
  bool Has(absl::string_view name) const { return Column(name).has_value(); }
  // Absent where the row has no such field.
  PyValue At(const TableRow& row, uint32_t column) const;
  PyValue At(const TableRow& row, absl::string_view name) const;

  // REQUIRES: rows() not empty.
  int64_t last_time() const;

  // Takes out the rows of which `gone` is true; columns stay.
  void Remove(const std::vector<bool>& gone);
  // Lines without a stage are of "init" where any line has one.
  void FillStages();

 private:
  class Reader;

  TraceTable() = default;

  PyPool pool_;
  std::vector<std::string> files_;
  std::vector<TableRow> rows_;
  std::vector<TableColumn> columns_;
  absl::flat_hash_map<absl::string_view, uint32_t> by_name_;
};

// The name with the other one of the prefixes _ML_DAIKON_ and _TRAINCHECK_,
// which are one; nullopt: it has none.
std::optional<std::string> WithOtherPrefix(absl::string_view name);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_TRACE_TABLE_H_
