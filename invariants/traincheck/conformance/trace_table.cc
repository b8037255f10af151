#include "invariants/traincheck/conformance/trace_table.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "invariants/traincheck/conformance/py_json.h"
#include "invariants/traincheck/trace_files.h"

namespace traincheck {

namespace {

constexpr absl::string_view kAttributes = "attributes.";
constexpr absl::string_view kStage = "meta_vars.stage";
// Kept whole where a line has them.
constexpr absl::string_view kWhole[] = {"args", "kwargs", "return_values"};
// Attributes with one of these prefixes are not followed as states of a
// variable.
constexpr absl::string_view kProperties[] = {"is_", "has_", "can_"};
constexpr absl::string_view kIdPrefix = "_ML_DAIKON";

// TrainCheck's names of records, as in trace_line.cc. The two readers share
// nothing, because the import skips what is wrong, and this one refuses what
// TrainCheck refuses.
struct LineType {
  absl::string_view name;
  TraceLineKind kind;
};

constexpr LineType kTypes[] = {
    {"function_call (pre)", TraceLineKind::kCallBegin},
    {"function_call (post)", TraceLineKind::kCallEnd},
    {"function_call (post) (exception)", TraceLineKind::kCallRaised},
    {"state_change", TraceLineKind::kState},
};

bool IsWhole(absl::string_view key) {
  return std::find(std::begin(kWhole), std::end(kWhole), key) !=
         std::end(kWhole);
}

// The attribute of a column, if its states are followed.
absl::string_view FollowedAttribute(absl::string_view column) {
  if (!absl::StartsWith(column, kAttributes) ||
      // In the older spelling only: TrainCheck follows the newer ids as states.
      absl::StrContains(column, kIdPrefix)) {
    return "";
  }
  const absl::string_view name = column.substr(kAttributes.size());
  const bool property =
      std::any_of(std::begin(kProperties), std::end(kProperties),
                  [name](absl::string_view prefix) {
                    return absl::StartsWith(name, prefix);
                  });
  return property ? "" : name;
}

absl::Status Bad(absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", what));
}

absl::StatusOr<int64_t> Number(const PyValue& line, const char* key) {
  const PyValue* value = line.Find(key);
  if (value == nullptr) return Bad(key, "missing");
  if (value->kind() != PyValue::Kind::kInteger || value->integer() < 0) {
    return Bad(key, "not an integer of 0 or more");
  }
  return value->integer();
}

// The text is in the pool of the table, so a row may keep its address.
absl::StatusOr<const std::string*> Text(const PyValue& line, const char* key) {
  const PyValue* value = line.Find(key);
  if (value == nullptr) return Bad(key, "missing");
  if (value->kind() != PyValue::Kind::kText || value->text().empty()) {
    return Bad(key, "not a text");
  }
  return &value->text();
}

absl::StatusOr<TraceLineKind> KindOf(const PyValue& line) {
  const absl::StatusOr<const std::string*> type = Text(line, "type");
  if (!type.ok()) return type.status();
  for (const LineType& known : kTypes) {
    if (**type == known.name) return known.kind;
  }
  return Bad("type", absl::StrCat("\"", (*type)->substr(0, 64),
                                  "\" is not a type of record"));
}

absl::Status ReadCall(const PyValue& line, TableRow* row) {
  const auto call = Text(line, "func_call_id");
  if (!call.ok()) return call.status();
  const auto function = Text(line, "function");
  if (!function.ok()) return function.status();
  row->call = *call;
  row->function = *function;
  return absl::OkStatus();
}

absl::Status ReadState(const PyValue& line) {
  for (const char* key : {"var_name", "var_type"}) {
    const auto text = Text(line, key);
    if (!text.ok()) return text.status();
  }
  return absl::OkStatus();
}

absl::Status ReadRow(const PyValue& line, TableRow* row) {
  if (line.kind() != PyValue::Kind::kObject) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  const absl::StatusOr<TraceLineKind> kind = KindOf(line);
  if (!kind.ok()) return kind.status();
  row->kind = *kind;
  struct {
    const char* key;
    int64_t* into;
  } const numbers[] = {{"process_id", &row->pid},
                       {"thread_id", &row->thread},
                       {"time", &row->time}};
  for (const auto& [key, into] : numbers) {
    const absl::StatusOr<int64_t> number = Number(line, key);
    if (!number.ok()) return number.status();
    *into = *number;
  }
  return row->kind == TraceLineKind::kState ? ReadState(line)
                                            : ReadCall(line, row);
}

absl::StatusOr<std::string> WholeFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  // An empty file is not an error. Inserting its buffer would set failbit, as
  // nothing is inserted.
  if (in && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (in.bad() || !in.is_open()) {
    return absl::NotFoundError(absl::StrCat("cannot read \"", path, "\""));
  }
  return std::move(text).str();
}

}  // namespace

// Reads files one after the other into one table. A column comes into being
// with the first line that has the field.
class TraceTable::Reader {
 public:
  explicit Reader(TraceTable* table) : table_(*table) {}

  absl::Status AddFile(const std::string& folder, const std::string& name) {
    const absl::StatusOr<std::string> text =
        WholeFile((std::filesystem::path(folder) / name).string());
    if (!text.ok()) return text.status();
    const auto file = static_cast<uint32_t>(table_.files_.size());
    table_.files_.push_back(name);
    absl::string_view rest = *text;
    for (uint32_t line = 1; !rest.empty(); ++line) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      // An empty line ends the reading, too: it is not JSON.
      const absl::Status status = AddLine(rest.substr(0, end), file, line);
      if (!status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": line ", line, ": ", status.message()));
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddLine(absl::string_view text, uint32_t file, uint32_t line) {
    const absl::StatusOr<PyValue> parsed =
        ParsePyJsonUntrusted(text, &table_.pool_);
    if (!parsed.ok()) return parsed.status();
    TableRow row;
    row.file = file;
    row.line = line;
    if (absl::Status status = ReadRow(*parsed, &row); !status.ok()) {
      return status;
    }
    // One vector for all lines: the row gets a copy without spare capacity.
    fields_.clear();
    for (const PyMember& member : parsed->object()) {
      // At the top of the line only: keys of these names further down are
      // flattened like others.
      if (IsWhole(*member.key)) {
        Add(*member.key, member.value);
      } else {
        Flatten(*member.key, member.value);
      }
    }
    row.fields = fields_;
    table_.rows_.push_back(std::move(row));
    return absl::OkStatus();
  }

  // As deep as the parser lets values nest.
  void Flatten(const std::string& name, const PyValue& value) {
    // An empty object has no fields that could stand for it.
    if (value.kind() != PyValue::Kind::kObject || value.object().empty()) {
      return Add(name, value);
    }
    for (const PyMember& member : value.object()) {
      Flatten(absl::StrCat(name, ".", *member.key), member.value);
    }
  }

  // Of fields with one name the last counts.
  void Add(absl::string_view name, const PyValue& value) {
    const uint32_t column = ColumnOf(name);
    // "a.b" may be a key of its own and a member of "a".
    for (TableField& field : fields_) {
      if (field.column == column) {
        field.value = value;
        return;
      }
    }
    fields_.push_back({column, value});
  }

  // Columns are numbered as they are first seen, which is the order in which
  // attributes are compared (VariableIndex::Follow).
  uint32_t ColumnOf(absl::string_view name) {
    const auto found = table_.by_name_.find(name);
    if (found != table_.by_name_.end()) return found->second;
    TableColumn column;
    column.name = table_.pool_.Intern(name);
    // Settled once for the column and not for each row that has it.
    const absl::string_view attribute = FollowedAttribute(name);
    if (!attribute.empty()) column.attribute = table_.pool_.Intern(attribute);
    const auto number = static_cast<uint32_t>(table_.columns_.size());
    table_.columns_.push_back(column);
    // The key is the interned text, which lives as long as the table.
    table_.by_name_.emplace(*column.name, number);
    return number;
  }

  TraceTable& table_;
  std::vector<TableField> fields_;  // of the line being read
};

// The whole trace in memory: relations look up any line of it at any time.
absl::StatusOr<std::unique_ptr<TraceTable>> TraceTable::ReadUntrusted(
    const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = TraceFilesIn(folder);
  if (!names.ok()) return names.status();
  std::unique_ptr<TraceTable> table(new TraceTable);
  Reader reader(table.get());
  for (const std::string& name : *names) {
    absl::Status status = reader.AddFile(folder, name);
    if (!status.ok()) return status;
  }
  if (table->rows_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the files of \"", folder, "\" hold no line"));
  }
  return table;
}

std::optional<uint32_t> TraceTable::Column(absl::string_view name) const {
  // The exact spelling first, because a trace may have both.
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  const std::optional<std::string> other = WithOtherPrefix(name);
  if (!other) return std::nullopt;
  const auto spelled = by_name_.find(*other);
  if (spelled == by_name_.end()) return std::nullopt;
  return spelled->second;
}

PyValue TraceTable::At(const TableRow& row, uint32_t column) const {
  // A linear search: a map in each row would take more memory than the fields.
  for (const TableField& field : row.fields) {
    if (field.column == column) return field.value;
  }
  return {};
}

PyValue TraceTable::At(const TableRow& row, absl::string_view name) const {
  const std::optional<uint32_t> column = Column(name);
  return column ? At(row, *column) : PyValue();
}

int64_t TraceTable::last_time() const {
  return std::max_element(rows_.begin(), rows_.end(),
                          [](const TableRow& a, const TableRow& b) {
                            return a.time < b.time;
                          })
      ->time;
}

// Rows keep their order and get other addresses, so all indexes are made after
// this (ConformanceTrace::Load).
void TraceTable::Remove(const std::vector<bool>& gone) {
  size_t kept = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (gone[i]) continue;
    if (kept != i) rows_[kept] = std::move(rows_[i]);
    ++kept;
  }
  rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(kept), rows_.end());
}

void TraceTable::FillStages() {
  // A trace in which no line has a stage stays without the column.
  const std::optional<uint32_t> stage = Column(kStage);
  if (!stage) return;
  const PyValue init = pool_.Text("init");
  for (TableRow& row : rows_) {
    const auto field =
        std::find_if(row.fields.begin(), row.fields.end(),
                     [&](const TableField& f) { return f.column == *stage; });
    if (field == row.fields.end()) {
      row.fields.push_back({*stage, init});
    } else if (field->value.absent()) {
      field->value = init;
    }
  }
}

std::optional<std::string> WithOtherPrefix(absl::string_view name) {
  static constexpr absl::string_view kOld = "_ML_DAIKON_";
  static constexpr absl::string_view kNew = "_TRAINCHECK_";
  for (const auto& [from, to] :
       {std::pair(kOld, kNew), std::pair(kNew, kOld)}) {
    // At any place: names of columns have the prefix behind "attributes.".
    const size_t at = name.find(from);
    if (at == absl::string_view::npos) continue;
    return absl::StrCat(name.substr(0, at), to, name.substr(at + from.size()));
  }
  return std::nullopt;
}

}  // namespace traincheck
