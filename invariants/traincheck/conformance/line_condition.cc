#include "invariants/traincheck/conformance/line_condition.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "invariants/traincheck/conformance/py_path.h"

namespace traincheck {

namespace {

using nlohmann::json;

struct TypeName {
  const char* name;
  ClauseType type;
};

constexpr TypeName kTypes[] = {
    {"constant", ClauseType::kConstant},
    {"consistent", ClauseType::kConsistent},
    {"unequal", ClauseType::kUnequal},
    {"exist", ClauseType::kExist},
};

absl::Status Unreadable(const std::string& what) {
  return absl::FailedPreconditionError("TrainCheck does not read " + what);
}

absl::Status ReadValues(const json& clause, PyPool* pool, LineClause* read) {
  for (const json& value : clause.at("values")) {
    // They are put into a set, which takes neither.
    if (value.is_structured()) {
      return Unreadable("a clause with a list or an object among its values");
    }
    read->values.insert(pool->FromJson(value));
  }
  if (read->values.empty()) return Unreadable("a constant clause of no values");
  return absl::OkStatus();
}

absl::StatusOr<LineClause> ReadClause(const json& clause, TraceTable* table) {
  LineClause read;
  read.name = table->pool().Intern(
      clause.at("prop_name").get_ref<const std::string&>());
  // Looked up once here, because Holds runs for each example of the line.
  read.column = table->Column(*read.name);
  const auto* type = std::find_if(
      std::begin(kTypes), std::end(kTypes),
      [&](const TypeName& known) { return clause.at("type") == known.name; });
  // CheckRuleForm has refused all other types.
  read.type = type->type;
  const json& path = clause.at("additional_path");
  if (path.is_null()) return Unreadable("a clause whose path is null");
  // A text here is "None", which stands for no path (CheckRuleForm).
  if (path.is_array()) {
    for (const json& key : path) {
      read.path.push_back(table->pool().FromJson(key));
    }
  }
  if (read.type != ClauseType::kConstant) return read;
  absl::Status status = ReadValues(clause, &table->pool(), &read);
  if (!status.ok()) return status;
  return read;
}

// What the record has under the clause's name; nullopt: it knows no such field.
std::optional<PyValue> FieldOf(const LineClause& clause,
                               const TraceRecord& record,
                               const TraceTable& table) {
  // What was written hides what the trace has.
  const PyValue* written = record.written->Find(clause.name);
  if (written != nullptr) return *written;
  if (!clause.column) return std::nullopt;
  return table.At(*record.row, *clause.column);
}

}  // namespace

absl::StatusOr<LineCondition> LineCondition::Read(const json& group,
                                                  TraceTable* table) {
  LineCondition condition;
  condition.table_ = table;
  condition.inverted_ = group.at("inverted").get<bool>();
  const json& alternatives = group.at("preconditions");
  for (const json& alternative : alternatives) {
    Alternative& read = condition.alternatives_.emplace_back();
    const json& clauses = alternative.at("clauses");
    // CheckRuleForm lets only the text "Unconditional" through. Without a
    // clause AnyHolds is true at once.
    read.unconditional = !clauses.is_array();
    if (read.unconditional && alternatives.size() > 1) {
      return Unreadable("an unconditional precondition beside others");
    }
    if (read.unconditional) continue;
    for (const json& clause : clauses) {
      absl::StatusOr<LineClause> one = ReadClause(clause, table);
      if (!one.ok()) return one.status();
      read.clauses.push_back(*std::move(one));
    }
  }
  return condition;
}

bool LineCondition::conditional() const {
  return std::any_of(alternatives_.begin(), alternatives_.end(),
                     [](const Alternative& a) { return !a.unconditional; });
}

absl::StatusOr<bool> LineCondition::Holds(
    const std::vector<TraceRecord>& records,
    const ContextManagers& contexts) const {
  // Before the clauses, and whatever they say: what is written stays for later
  // examples and lines.
  if (absl::Status status = contexts.WriteActive(records); !status.ok()) {
    return status;
  }
  absl::StatusOr<bool> any = AnyHolds(records);
  if (!any.ok()) return any;
  return *any != inverted_;
}

absl::StatusOr<bool> LineCondition::AnyHolds(
    const std::vector<TraceRecord>& records) const {
  for (const Alternative& alternative : alternatives_) {
    bool all = true;
    for (const LineClause& clause : alternative.clauses) {
      // Up to the first clause that does not hold, and the first alternative
      // that does: what TrainCheck does not evaluate cannot stop it.
      absl::StatusOr<bool> holds = ClauseHolds(clause, records);
      if (!holds.ok()) return holds;
      all = *holds;
      if (!all) break;
    }
    if (all) return true;
  }
  return false;
}

// First each record is followed to its value, and the first that has none
// decides. Then the kind of clause compares the values.
absl::StatusOr<bool> LineCondition::ClauseHolds(
    const LineClause& clause, const std::vector<TraceRecord>& records) const {
  // The different values that the records have: "constant" and "consistent" ask
  // for one, "unequal" for as many as there are records.
  absl::flat_hash_set<PyValue> seen;
  for (const TraceRecord& record : records) {
    const std::optional<PyValue> field = FieldOf(clause, record, *table_);
    // No line of the trace has the field.
    if (!field) return false;
    PyValue value = *field;
    for (const PyValue& key : clause.path) {
      const PyContained found = PyContains(value, key);
      if (found == PyContained::kNo) return false;
      std::optional<PyValue> inner;
      // `key in list` asks for an item and list[key] for a place, so that the
      // one may hold and the other fail.
      if (found == PyContained::kYes) inner = PyItem(value, key).value;
      if (!inner) {
        return absl::FailedPreconditionError(
            absl::StrCat("the clause on ", *clause.name, " looks for ",
                         PyValueText(key), " in ", PyValueText(value)));
      }
      value = *inner;
    }
    // This record lacks the field, so that no kind of clause holds.
    if (value.absent()) return false;
    if (clause.type == ClauseType::kExist) continue;
    // TrainCheck compares values in a set, which takes no list and no dict; the
    // clause then does not hold.
    if (!value.hashable()) return false;
    seen.insert(value);
  }
  switch (clause.type) {
    case ClauseType::kConstant:
      return seen.size() == 1 && clause.values.contains(*seen.begin());
    case ClauseType::kConsistent:
      return seen.size() == 1;
    case ClauseType::kUnequal:
      return seen.size() == records.size();
    case ClauseType::kExist:
      return true;
  }
  return false;
}

}  // namespace traincheck
