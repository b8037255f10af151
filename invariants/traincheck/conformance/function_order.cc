#include "invariants/traincheck/conformance/function_order.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace traincheck {

namespace {

// Functions with one of these in their names are not looked at.
constexpr absl::string_view kSkipped[] = {
    "cuda.is_available",
    "torch.get_default_dtype",
    "torch._VariableFunctionsClass",
    "torch.cuda._is_compiled",
    "torch.is_grad_enabled",
    "torch._ops.OpOverload",
    "torch.nn.modules.module.Module",
    "torch.utils.data._utils",
    "torch.distributed.utils._to_kwargs",
    "torch.distributed.utils._recursive_to",
    "torch.nn.parallel.scatter_gather._is_namedtuple",
    "torch.nn._reduction",
    "torch.nn.functional",
    "torch._tensor.Tensor.backward",
    "torch.autograd",
    "torch.optim.optimizer.Optimizer._optimizer_step_code",
    "torch.optim.optimizer._get_value",
    "torch.overrides",
    "._",
    "<locals>",
};

// Nor is one with more lines in a row, anywhere in the trace.
constexpr size_t kMaxInARow = 4;

bool Skipped(absl::string_view function) {
  return std::any_of(std::begin(kSkipped), std::end(kSkipped),
                     [function](absl::string_view name) {
                       return absl::StrContains(function, name);
                     });
}

absl::Status NoEnd(const OrderedCall& call) {
  return absl::FailedPreconditionError(
      absl::StrCat("the call ", *call.begin->call, " of ",
                   *call.begin->function, " has no end"));
}

}  // namespace

FunctionOrder::FunctionOrder(const TraceTable& table) {
  FindPool(table);
  Order(table);
  if (status_.ok()) FindStop();
}

// The pool: functions of the trace without those that are skipped by name and
// those with too many lines in a row.
void FunctionOrder::FindPool(const TraceTable& table) {
  absl::flat_hash_map<const std::string*, size_t> most;
  const std::string* last = nullptr;
  size_t in_a_row = 0;
  for (const TableRow& row : table.rows()) {
    // In the order of the table, not of a thread: lines of another thread
    // interrupt a row.
    in_a_row = row.function == last ? in_a_row + 1 : 1;
    last = row.function;
    if (last == nullptr) continue;  // a state stands between two calls
    size_t& known = most[last];
    known = std::max(known, in_a_row);
  }
  for (const auto& [function, times] : most) {
    if (times <= kMaxInARow && !Skipped(*function)) pool_.insert(*function);
  }
}

// For each thread and function the calls by time, each with its end, and the
// two numbers by which SameLevel compares functions.
void FunctionOrder::Order(const TraceTable& table) {
  std::map<TableThread, std::vector<const TableRow*>> rows;
  for (const TableRow& row : table.rows()) {
    if (row.function != nullptr && pool_.contains(*row.function)) {
      rows[row.in()].push_back(&row);
    }
  }
  for (auto& [thread, lines] : rows) {
    threads_.push_back(thread);
    ByFunction& functions = by_thread_[thread];
    std::stable_sort(
        lines.begin(), lines.end(),
        [](const TableRow* a, const TableRow* b) { return a->time < b->time; });
    absl::flat_hash_map<const std::string*, size_t> places;  // of calls
    for (const TableRow* row : lines) {
      Times& times = functions[*row->function];
      if (row->kind == TraceLineKind::kCallBegin) {
        // A second begin of one id takes the place of the first, whose call
        // then has no end.
        places[row->call] = times.calls.size();
        OrderedCall call;
        call.begin = row;
        times.calls.push_back(std::move(call));
        continue;
      }
      const auto place = places.find(row->call);
      // The id may have begun as a call of another function, whose calls are
      // counted apart.
      if (place == places.end() || place->second >= times.calls.size()) {
        status_ = absl::FailedPreconditionError(
            absl::StrCat("the call ", *row->call, " of ", *row->function,
                         " ends before it begins on its thread"));
        return;
      }
      times.calls[place->second].end = row;
    }
    for (auto& [function, times] : functions) {
      // Two numbers a function are enough to compare it with another one
      // (SameLevel), however many calls they have.
      times.last_begin = std::numeric_limits<int64_t>::min();
      times.first_end = std::numeric_limits<int64_t>::max();
      for (const OrderedCall& call : times.calls) {
        times.last_begin = std::max(times.last_begin, call.begin->time);
        times.open |= call.end == nullptr;
        if (call.end == nullptr) continue;
        times.first_end = std::min(times.first_end, call.end->time);
      }
    }
  }
}

// TrainCheck compares all pairs of the pool on each thread before it looks at
// the first Cover or Lead, and stops where it needs an end that is not there.
void FunctionOrder::FindStop() {
  for (const auto& [thread, functions] : by_thread_) {
    for (const auto& [open, times] : functions) {
      // Only an end that is missing can stop it, so that functions without one
      // need not be paired.
      if (!times.open) continue;
      for (const auto& [other, other_times] : functions) {
        if (other == open) continue;
        if (Reaches(times, other_times) && Reaches(other_times, times)) {
          continue;
        }
        for (const OrderedCall& call : times.calls) {
          if (call.end == nullptr) status_ = NoEnd(call);
        }
        return;
      }
    }
  }
}

// Comparing call by call, does it come to a pair that does not overlap, or to
// the last, before it comes to a call without an end?
// Pair by pair and in this order, because only the place of the first missing
// end among the comparisons decides whether TrainCheck stops.
bool FunctionOrder::Reaches(const Times& a, const Times& b) {
  for (const OrderedCall& one : a.calls) {
    for (const OrderedCall& other : b.calls) {
      if (one.end == nullptr || other.end == nullptr) return false;
      if (one.begin->time > other.end->time ||
          other.begin->time > one.end->time) {
        return true;
      }
    }
  }
  return true;
}

bool FunctionOrder::InPool(absl::string_view function) const {
  return pool_.contains(function);
}

std::vector<OrderedCall>& FunctionOrder::Calls(const TableThread& thread,
                                               absl::string_view function) {
  return by_thread_.at(thread).find(function)->second.calls;
}

bool FunctionOrder::SameLevel(const TableThread& thread, absl::string_view a,
                              absl::string_view b) const {
  if (a == b) return false;
  const ByFunction& functions = by_thread_.at(thread);
  const auto one = functions.find(a);
  const auto other = functions.find(b);
  if (one == functions.end() || other == functions.end()) return false;
  // Some pair of calls does not overlap if and only if the last to begin of one
  // function begins after the first of the other has ended.
  return one->second.last_begin > other->second.first_end ||
         other->second.last_begin > one->second.first_end;
}

bool FunctionOrder::HasPartner(const TableThread& thread,
                               absl::string_view function) {
  // Kept, because each line of the file asks again.
  const auto [known, added] =
      partners_.try_emplace({thread, std::string(function)}, false);
  if (!added) return known->second;
  for (const auto& [other, times] : by_thread_.at(thread)) {
    if (SameLevel(thread, function, other)) {
      known->second = true;
      break;
    }
  }
  return known->second;
}

}  // namespace traincheck
