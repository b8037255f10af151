#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "invariants/traincheck/conformance/line_relations.h"

namespace traincheck {

namespace {

constexpr char kGroup[] = "distinct_arg";
constexpr char kStep[] = "meta_vars.step";
// TrainCheck's bounds: floats closer than the first are the same, and so are
// lists of integers that share at least the second part of their values.
constexpr double kSameNumbers = 1e-8;
constexpr double kLeastShared = 0.1;

bool AllIntegers(const PyList& list) {
  return std::all_of(list.begin(), list.end(),
                     [](const PyValue& item) { return item.integral(); });
}

// Of the values that any of them has, do they share a tenth?
bool ShareValues(const PyList& a, const PyList& b) {
  const absl::flat_hash_set<PyValue> one(a.begin(), a.end());
  const absl::flat_hash_set<PyValue> other(b.begin(), b.end());
  const auto both = static_cast<size_t>(std::count_if(
      one.begin(), one.end(),
      [&](const PyValue& value) { return other.contains(value); }));
  const size_t either = one.size() + other.size() - both;
  // Two empty lists share nothing.
  if (either == 0) return false;
  return static_cast<double>(both) / static_cast<double>(either) >=
         kLeastShared;
}

bool Same(const PyValue& a, const PyValue& b);

bool SameLists(const PyList& a, const PyList& b) {
  // Before lengths are compared: lists of integers of different lengths can be
  // the same.
  if (AllIntegers(a) && AllIntegers(b)) return ShareValues(a, b);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Same);
}

bool SameObjects(const PyValue& a, const PyValue& b) {
  if (a.object().size() != b.object().size()) return false;
  return std::all_of(a.object().begin(), a.object().end(),
                     [&b](const PyMember& member) {
                       const PyValue* other = b.Find(*member.key);
                       return other != nullptr && Same(member.value, *other);
                     });
}

// Unlike ==, by type: 1 and 1.0 are not the same.
bool Same(const PyValue& a, const PyValue& b) {
  // An integer beyond 64 bits is an int in Python like any other.
  const auto type = [](const PyValue& value) {
    return value.kind() == PyValue::Kind::kBigInteger ? PyValue::Kind::kInteger
                                                      : value.kind();
  };
  if (type(a) != type(b)) return false;
  switch (a.kind()) {
    case PyValue::Kind::kList:
      return SameLists(a.list(), b.list());
    case PyValue::Kind::kObject:
      return SameObjects(a, b);
    case PyValue::Kind::kFloat:
      return std::abs(a.real() - b.real()) < kSameNumbers;
    default:
      return a == b;
  }
}

struct DistinctCall {
  const TableRow* begin = nullptr;
  PyValue args;
};

// The calls of a step, by thread.
// Threads stand in the order of their first call in the step, in which
// CompareStep pairs them.
struct StepCalls {
  std::vector<std::vector<DistinctCall>> threads;
  absl::flat_hash_map<TableThread, size_t> places;

  void Add(const DistinctCall& call) {
    const auto [place, added] =
        places.try_emplace(call.begin->in(), threads.size());
    if (added) threads.emplace_back();
    threads[place->second].push_back(call);
  }
};

absl::StatusOr<bool> SameArguments(const DistinctCall& a,
                                   const DistinctCall& b) {
  // What is not recorded is the same as nothing else.
  if (a.args.absent() || b.args.absent()) return false;
  if (a.args.kind() != PyValue::Kind::kObject ||
      b.args.kind() != PyValue::Kind::kObject) {
    return absl::FailedPreconditionError(
        absl::StrCat("the arguments of a call of ", *a.begin->function,
                     " are not in TrainCheck's form"));
  }
  return SameObjects(a.args, b.args);
}

// The first two calls with the same arguments: TrainCheck compares threads with
// each other first, then the calls of each. All pairs of a step, as there: what
// is reported is the first of them.
absl::StatusOr<LineFinding> CompareStep(const StepCalls& step) {
  const auto compare =
      [](const DistinctCall& a,
         const DistinctCall& b) -> absl::StatusOr<LineFinding> {
    const absl::StatusOr<bool> same = SameArguments(a, b);
    if (!same.ok()) return same.status();
    if (!*same) return LineHolds(/*triggered=*/true);
    return LineFails("two calls in one step have the same arguments",
                     {a.begin, b.begin});
  };
  for (size_t i = 0; i < step.threads.size(); ++i) {
    for (size_t j = i + 1; j < step.threads.size(); ++j) {
      for (const DistinctCall& a : step.threads[i]) {
        for (const DistinctCall& b : step.threads[j]) {
          absl::StatusOr<LineFinding> found = compare(a, b);
          if (!found.ok() || !found->rows.empty()) return found;
        }
      }
    }
  }
  for (const std::vector<DistinctCall>& calls : step.threads) {
    for (size_t i = 0; i < calls.size(); ++i) {
      for (size_t j = i + 1; j < calls.size(); ++j) {
        absl::StatusOr<LineFinding> found = compare(calls[i], calls[j]);
        if (!found.ok() || !found->rows.empty()) return found;
      }
    }
  }
  return LineHolds(/*triggered=*/true);
}

class Steps {
 public:
  explicit Steps(ConformanceTrace* trace) : trace_(*trace) {}

  const std::vector<TraceRecord>& records() const { return records_; }
  const std::vector<StepCalls>& steps() const { return steps_; }

  absl::Status Add(TableCall* call) {
    const absl::StatusOr<CallEnds> ends = trace_.calls().Event(*call);
    if (!ends.ok()) return ends.status();
    TraceTable& table = trace_.table();
    // No call of the trace has arguments: none is compared, and the line is not
    // triggered.
    if (!table.Has("args")) return absl::OkStatus();
    PyValue step = table.At(*ends->begin, kStep);
    if (!table.Has(kStep)) {
      // TrainCheck writes it into its copy, where later lines see it.
      step = PyValue::Integer(-1);
      call->written.Set(table.pool().Intern(kStep), step);
    }
    if (!step.hashable()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the step of the call ", *call->id, " is ", PyValueText(step)));
    }
    records_.push_back({ends->begin, &call->written});
    Place(step).Add({ends->begin, table.At(*ends->begin, "args")});
    return absl::OkStatus();
  }

 private:
  // The calls of this step, made when the step is seen first.
  StepCalls& Place(const PyValue& step) {
    // Where other calls have a step, each call without one has its own.
    if (step.absent()) return steps_.emplace_back();
    const auto [place, added] = places_.try_emplace(step, steps_.size());
    return added ? steps_.emplace_back() : steps_[place->second];
  }

  ConformanceTrace& trace_;
  std::vector<TraceRecord> records_;
  std::vector<StepCalls> steps_;  // as they are seen first
  absl::flat_hash_map<PyValue, size_t> places_;
};

}  // namespace

// The precondition is asked once, with all calls of the trace as one example.
// If it holds, no two calls of one step may have the same arguments.
LineResult CheckDistinct(const CheckedLine& line, ConformanceTrace* trace) {
  Steps steps(trace);
  // Calls that raised or have no end count as well: only what they were given
  // is compared.
  for (TableCall* call : trace->calls().Of(line.params[0].name)) {
    if (absl::Status status = steps.Add(call); !status.ok()) return status;
  }
  if (steps.records().empty()) return LineHolds(/*triggered=*/false);
  // One example of all calls.
  const absl::StatusOr<bool> holds =
      line.conditions.at(kGroup).Holds(steps.records(), trace->contexts());
  if (!holds.ok()) return holds.status();
  if (!*holds) return LineHolds(/*triggered=*/false);
  for (const StepCalls& step : steps.steps()) {
    LineResult found = CompareStep(step);
    if (!found.ok() || !found->rows.empty()) return found;
  }
  return LineHolds(/*triggered=*/true);
}

}  // namespace traincheck
