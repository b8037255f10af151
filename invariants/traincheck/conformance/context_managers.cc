#include "invariants/traincheck/conformance/context_managers.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace traincheck {

namespace {

constexpr absl::string_view kEnter = ".__enter__";
constexpr absl::string_view kExit = ".__exit__";
constexpr absl::string_view kInit = ".__init__";
// Their classes have no __init__ that is recorded.
constexpr absl::string_view kLeftAside[] = {
    "torch.autograd.grad_mode", "torch.autograd.profiler.record_function"};

bool IsEnter(absl::string_view function) {
  if (!absl::StrContains(function, "__enter__")) return false;
  for (const absl::string_view name : kLeftAside) {
    if (absl::StrContains(function, name)) return false;
  }
  return true;
}

// {NAME: VALUE} of keyword arguments {NAME: {TYPE: VALUE}}; absent: they have
// another form.
PyValue WithoutTypes(const PyValue& keywords, PyPool* pool) {
  PyObject input;
  for (const PyMember& argument : keywords.object()) {
    if (argument.value.kind() != PyValue::Kind::kObject ||
        argument.value.object().empty()) {
      return {};
    }
    input.push_back({argument.key, argument.value.object().front().value});
  }
  return pool->Object(std::move(input));
}

}  // namespace

// A context is an __init__ with the first __enter__ behind it, and the first
// __exit__ behind that, of the same object on the same thread. One that lacks
// any of the three is none.
class ContextManagers::Finder {
 public:
  Finder(TraceTable* table, ContextManagers* found)
      : table_(*table), found_(*found) {}

  absl::Status Run() {
    Index();
    for (const std::string* name : classes_) {
      const auto inits = inits_.find(absl::StrCat(*name, kInit));
      if (inits == inits_.end()) continue;
      for (const TableRow* init : inits->second) {
        if (absl::Status status = Add(*name, *init); !status.ok()) {
          return status;
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  void Index() {
    absl::flat_hash_set<const std::string*> known;
    for (const TableRow& row : table_.rows()) {
      if (row.function == nullptr) continue;
      if (IsEnter(*row.function) && known.insert(row.function).second) {
        classes_.push_back(
            table_.pool().Intern(absl::StripSuffix(*row.function, kEnter)));
      }
      if (row.kind == TraceLineKind::kCallBegin &&
          absl::EndsWith(*row.function, kInit)) {
        inits_[*row.function].push_back(&row);
      }
      // A context is active from the end of __enter__ to the begin of __exit__.
      const bool edge = row.kind == TraceLineKind::kCallBegin
                            ? absl::EndsWith(*row.function, kExit)
                            : row.kind == TraceLineKind::kCallEnd &&
                                  absl::EndsWith(*row.function, kEnter);
      if (edge) AddEdge(row);
    }
  }

  // Edges of one function, in one thread and with one object. Objects that are
  // lists or objects of JSON have no hash: they share a place with None.
  using EdgeKey = std::tuple<absl::string_view, TableThread, PyValue>;

  struct Edge {
    const TableRow* row = nullptr;
    PyValue object;
    int64_t latest = 0;  // time of it and of those before it
  };

  static EdgeKey KeyOf(absl::string_view function, const TableRow& row,
                       const PyValue& object) {
    return {function, row.in(), object.hashable() ? object : PyValue::None()};
  }

  void AddEdge(const TableRow& row) {
    const PyValue object = table_.At(row, "obj_id");
    // NaN, which equals nothing.
    if (object.absent()) return;
    std::vector<Edge>& edges = edges_[KeyOf(*row.function, row, object)];
    const int64_t before = edges.empty() ? row.time : edges.back().latest;
    edges.push_back({&row, object, std::max(before, row.time)});
  }

  // The first line, as the files have them, of this function after the time,
  // in the same thread and with the same object.
  const TableRow* FirstAfter(const std::string& function, int64_t time,
                             const TableRow& init) const {
    // An __init__ without an id has NaN for it, which equals nothing: its
    // context is not found, as in TrainCheck.
    const PyValue object = table_.At(init, "obj_id");
    if (object.absent()) return nullptr;
    const auto edges = edges_.find(KeyOf(function, init, object));
    if (edges == edges_.end()) return nullptr;
    // None before it is later than the time.
    auto at = std::partition_point(
        edges->second.begin(), edges->second.end(),
        [time](const Edge& edge) { return edge.latest <= time; });
    for (; at != edges->second.end(); ++at) {
      if (at->row->time > time && at->object == object) return at->row;
    }
    return nullptr;
  }

  // A context lasts from the end of __enter__ to the begin of __exit__. What it
  // was made with is what preconditions ask about.
  absl::Status Add(const std::string& name, const TableRow& init) {
    const TableRow* enter =
        FirstAfter(absl::StrCat(name, kEnter), init.time, init);
    if (enter == nullptr) return absl::OkStatus();
    const TableRow* exit =
        FirstAfter(absl::StrCat(name, kExit), enter->time, init);
    if (exit == nullptr) return absl::OkStatus();
    // Only now, as TrainCheck reads arguments only of contexts that were
    // entered and left.
    if (!table_.Has("args") || !table_.Has("kwargs")) {
      return absl::FailedPreconditionError(
          absl::StrCat("a ", name,
                       " is entered, and no call of the trace has "
                       "its arguments recorded"));
    }
    Context context;
    context.field =
        table_.pool().Intern(absl::StrCat("meta_vars.context_managers.", name));
    context.from = enter->time;
    context.to = exit->time;
    const PyValue keywords = table_.At(init, "kwargs");
    // Where other calls have arguments, a call without them was given none.
    if (table_.At(init, "args").absent()) {
      context.input = table_.pool().Object({});
    } else if (keywords.kind() != PyValue::Kind::kObject) {
      return absl::FailedPreconditionError(
          absl::StrCat("a ", name,
                       " is made without recorded keyword "
                       "arguments"));
    } else {
      // Without a type it is an error only where the context is asked for
      // (WriteActive).
      context.input = WithoutTypes(keywords, &table_.pool());
    }
    found_.by_thread_[init.in()].push_back(context);
    return absl::OkStatus();
  }

  using Rows = std::vector<const TableRow*>;

  TraceTable& table_;
  ContextManagers& found_;
  std::vector<const std::string*> classes_;  // as they are entered first
  absl::flat_hash_map<std::string, Rows> inits_;
  // Ends of enter, begins of exit.
  absl::flat_hash_map<EdgeKey, std::vector<Edge>> edges_;
};

absl::StatusOr<ContextManagers> ContextManagers::Find(TraceTable* table) {
  ContextManagers found;
  absl::Status status = Finder(table, &found).Run();
  if (!status.ok()) return status;
  return found;
}

absl::Status ContextManagers::WriteActive(
    const std::vector<TraceRecord>& records) const {
  const TableRow& first = *records.front().row;
  const auto contexts = by_thread_.find(first.in());
  if (contexts == by_thread_.end()) return absl::OkStatus();
  // Written and never taken out again: trace_record.h says why this must be as
  // in TrainCheck.
  for (const Context& context : contexts->second) {
    // Those of the first record count for all, whenever the others are: so it
    // is there.
    if (first.time < context.from || first.time > context.to) continue;
    if (context.input.absent()) {
      return absl::FailedPreconditionError(
          absl::StrCat(*context.field, " has arguments without a type"));
    }
    // Of several of one class the last counts.
    for (const TraceRecord& record : records) {
      record.written->Set(context.field, context.input);
    }
  }
  return absl::OkStatus();
}

}  // namespace traincheck
