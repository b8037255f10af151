#include "invariants/traincheck/conformance/variable_index.h"

#include <algorithm>
#include <utility>

namespace traincheck {

namespace {

using Changes = std::vector<AttributeChange>;

void SortByTime(Changes* changes) {
  std::stable_sort(changes->begin(), changes->end(),
                   [](const AttributeChange& a, const AttributeChange& b) {
                     return a.after->from < b.after->from;
                   });
}

// By bisection in time, and then in TrainCheck's order: a change that ends its
// check must come where it comes there.
Changes InSpan(const Changes& by_time, const CallSpan& span) {
  Changes found;
  for (auto at =
           std::lower_bound(by_time.begin(), by_time.end(), span.from(),
                            [](const AttributeChange&change, int64_t time) {
                              return change.after->from < time;
                            });
       at != by_time.end() && span.Has(at->after->from); ++at) {
    found.push_back(*at);
  }
  std::sort(found.begin(), found.end(),
            [](const AttributeChange& a, const AttributeChange& b) {
              return a.number < b.number;
            });
  return found;
}

// A row extends the last state or begins another one.
void Take(const PyValue& value, const TableRow& row,
          FollowedAttribute* attribute) {
  std::vector<AttributeState>& states = attribute->states;
  if (states.empty() || states.back().value != value) {
    // States follow each other without a hole, so that those of a time are
    // found by bisection.
    if (!states.empty()) states.back().to = row.time;
    AttributeState state;
    state.value = value;
    state.from = row.time;
    states.push_back(std::move(state));
  }
  states.back().last = &row;
}

}  // namespace

FollowedAttribute* TableVariable::Find(absl::string_view attribute) {
  for (FollowedAttribute& known : attributes) {
    if (*known.name == attribute) return &known;
  }
  return nullptr;
}

VariableIndex::VariableIndex(const TraceTable& table)
    : last_time_(table.last_time()) {
  std::map<Key, std::pair<size_t, std::vector<const TableRow*>>> rows;
  for (const TableRow& row : table.rows()) {
    if (row.kind != TraceLineKind::kState) continue;
    // The texts are of the table's pool, and outlive the values that give them.
    const std::string& name = table.At(row, "var_name").text();
    const std::string& type = table.At(row, "var_type").text();
    // By process as well: each rank has a variable of this name.
    const auto [known, added] =
        rows.try_emplace({row.pid, name, type}, variables_.size(),
                         std::vector<const TableRow*>());
    if (added) {
      TableVariable variable;
      variable.pid = row.pid;
      variable.name = &name;
      variable.type = &type;
      variables_.push_back(std::move(variable));
    }
    known->second.second.push_back(&row);
  }
  for (auto& [key, place] : rows) {
    std::stable_sort(
        place.second.begin(), place.second.end(),
        [](const TableRow* a, const TableRow* b) { return a->time < b->time; });
    Follow(table, place.second, &variables_[place.first]);
  }
  // Behind all states: changes point to them.
  IndexChanges();
}

// Turns the lines of one variable into the states of its attributes: a value
// and how long it lasted.
void VariableIndex::Follow(const TraceTable& table,
                           const std::vector<const TableRow*>& rows,
                           TableVariable* variable) const {
  std::map<uint32_t, size_t> places;  // in attributes, by column
  for (const TableRow* row : rows) {
    std::vector<TableField> fields;
    for (const TableField& field : row->fields) {
      const bool followed = table.columns()[field.column].attribute != nullptr;
      // A line without the attribute says nothing of it: the state before goes
      // on.
      if (followed && !field.value.absent()) fields.push_back(field);
    }
    // In the order of the columns, which decides the order of attributes and
    // with it that of changes (IndexChanges).
    std::sort(fields.begin(), fields.end(),
              [](const TableField& a, const TableField& b) {
                return a.column < b.column;
              });
    for (const TableField& field : fields) {
      const auto [place, added] =
          places.try_emplace(field.column, variable->attributes.size());
      if (added) {
        variable->attributes.push_back(
            {table.columns()[field.column].attribute, {}});
      }
      Take(field.value, *row, &variable->attributes[place->second]);
    }
  }
  for (FollowedAttribute& attribute : variable->attributes) {
    // The last value lasts until the last line of the trace, of any process.
    attribute.states.back().to = last_time_;
  }
}

void VariableIndex::IndexChanges() {
  size_t number = 0;
  for (const TableVariable& variable : variables_) {
    for (const FollowedAttribute& attribute : variable.attributes) {
      // From the second state on: a change has a state before it.
      for (size_t i = 1; i < attribute.states.size(); ++i) {
        const AttributeChange change = {&variable, attribute.name,
                                        &attribute.states[i - 1],
                                        &attribute.states[i], number++};
        // Twice: most lines name type and attribute, and look at few changes.
        by_process_[variable.pid].push_back(change);
        by_attribute_[{variable.pid, *variable.type, *attribute.name}]
            .push_back(change);
      }
    }
  }
  for (auto& [pid, changes] : by_process_) SortByTime(&changes);
  for (auto& [key, changes] : by_attribute_) SortByTime(&changes);
}

Changes VariableIndex::Changes(int64_t pid, const CallSpan& span) const {
  const auto found = by_process_.find(pid);
  if (found == by_process_.end()) return {};
  return InSpan(found->second, span);
}

Changes VariableIndex::Changes(int64_t pid, const CallSpan& span,
                               absl::string_view type,
                               absl::string_view attribute) const {
  const auto found =
      by_attribute_.find({pid, std::string(type), std::string(attribute)});
  if (found == by_attribute_.end()) return {};
  return InSpan(found->second, span);
}

}  // namespace traincheck
