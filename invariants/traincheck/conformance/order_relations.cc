#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "invariants/traincheck/conformance/line_relations.h"

namespace traincheck {

namespace {

// Nullopt-like: a finding without rows is none.
using PairResult = LineResult;

bool Fails(const PairResult& result) {
  return !result.ok() || !result->rows.empty();
}

// A pair of functions that follow each other in the params, on one thread.
struct OrderedPair {
  const std::string& a;
  const std::string& b;
  const TableThread& thread;
};

// What CheckCovered and CheckLed share: the precondition of the line and
// whether it has held anywhere.
class PairCheck {
 public:
  PairCheck(const LineCondition& condition, ConformanceTrace* trace)
      : condition_(condition), trace_(*trace) {}

  absl::StatusOr<bool> Holds(OrderedCall* call) {
    return condition_.Holds({{call->begin, &call->written}}, trace_.contexts());
  }
  FunctionOrder& order() { return trace_.order(); }
  bool triggered() const { return triggered_; }
  void Trigger() { triggered_ = true; }

  // The first call of `function` for which the precondition holds is reported:
  // the other function is not on one level with it.
  PairResult FirstFails(const TableThread& thread, const std::string& function,
                        const std::string& missing) {
    for (OrderedCall& call : order().Calls(thread, function)) {
      const absl::StatusOr<bool> holds = Holds(&call);
      if (!holds.ok()) return holds.status();
      if (!*holds) continue;
      return LineFails(absl::StrCat("no call of ", missing,
                                    " stands beside it on its thread"),
                       {call.begin});
    }
    // No call satisfies the precondition, so there is none to report.
    return LineFinding();
  }

 private:
  const LineCondition& condition_;
  ConformanceTrace& trace_;
  bool triggered_ = false;
};

absl::StatusOr<int64_t> EndOf(const OrderedCall& call) {
  if (call.end != nullptr) return call.end->time;
  return absl::FailedPreconditionError(
      absl::StrCat("the call ", *call.begin->call, " of ",
                   *call.begin->function, " has no end"));
}

// Looks for a call between two times. Those that were passed over are not
// looked at again.
class CallSearch {
 public:
  explicit CallSearch(const std::vector<OrderedCall>& calls) : calls_(calls) {}

  // One that begins after `after`, unless there is none to come after, and has
  // ended at `before`.
  absl::StatusOr<bool> Find(const int64_t* after, int64_t before) {
    while (at_ < calls_.size()) {
      const OrderedCall& call = calls_[at_];
      // Such a call may lie before the next one that asks. One that is passed
      // over below begins before the call that asks has ended, and the next to
      // ask wants one that begins after that.
      if (call.begin->time > before) return false;
      ++at_;
      if (after != nullptr && call.begin->time <= *after) continue;
      const absl::StatusOr<int64_t> end = EndOf(call);
      if (!end.ok()) return end.status();
      if (*end <= before) return true;
    }
    return false;
  }

 private:
  const std::vector<OrderedCall>& calls_;
  size_t at_ = 0;
};

// Before each b, since the b before it, a has run.
PairResult CheckCovered(const OrderedPair& pair, PairCheck* check) {
  FunctionOrder& order = check->order();
  // A function with a partner has calls on the thread, which Calls takes for
  // granted.
  if (!order.HasPartner(pair.thread, pair.b)) return LineFinding();
  if (!order.SameLevel(pair.thread, pair.a, pair.b)) {
    return check->FirstFails(pair.thread, pair.b, pair.a);
  }
  CallSearch search(order.Calls(pair.thread, pair.a));
  bool any = false;
  int64_t last_end = 0;
  for (OrderedCall& b : order.Calls(pair.thread, pair.b)) {
    const absl::StatusOr<bool> holds = check->Holds(&b);
    if (!holds.ok()) return holds.status();
    if (!*holds) continue;
    const int64_t begin = b.begin->time;
    // A b that begins within the last one leaves no time in which an a could
    // run.
    if (any && begin <= last_end) {
      return LineFails(absl::StrCat("it begins within another ", pair.b),
                       {b.begin});
    }
    const absl::StatusOr<int64_t> end = EndOf(b);
    if (!end.ok()) return end.status();
    const absl::StatusOr<bool> found =
        // For the first b any earlier a will do.
        search.Find(any ? &last_end : nullptr, begin);
    if (!found.ok()) return found.status();
    if (!*found) {
      return LineFails(
          absl::StrCat("no call of ", pair.a,
                       " stands before it, after the last ", pair.b),
          {b.begin});
    }
    any = true;
    last_end = *end;
  }
  return LineFinding();
}

// After each a, before the next, b runs. The last a is not looked at.
PairResult CheckLed(const OrderedPair& pair, PairCheck* check) {
  FunctionOrder& order = check->order();
  if (!order.HasPartner(pair.thread, pair.a)) return LineFinding();
  if (!order.SameLevel(pair.thread, pair.a, pair.b)) {
    return check->FirstFails(pair.thread, pair.a, pair.b);
  }
  CallSearch search(order.Calls(pair.thread, pair.b));
  const OrderedCall* last = nullptr;
  int64_t last_end = 0;
  for (OrderedCall& a : order.Calls(pair.thread, pair.a)) {
    const absl::StatusOr<bool> holds = check->Holds(&a);
    if (!holds.ok()) return holds.status();
    if (!*holds) continue;
    check->Trigger();
    const int64_t begin = a.begin->time;
    // The finding is about the earlier a, after which no b has had time to run.
    if (last != nullptr && begin <= last_end) {
      return LineFails(absl::StrCat("the next ", pair.a, " begins within it"),
                       {last->begin});
    }
    const absl::StatusOr<int64_t> end = EndOf(a);
    if (!end.ok()) return end.status();
    if (last != nullptr) {
      const absl::StatusOr<bool> found = search.Find(&last_end, begin);
      if (!found.ok()) return found.status();
      if (!*found) {
        return LineFails(absl::StrCat("no call of ", pair.b,
                                      " follows it before the next ", pair.a),
                         {last->begin});
      }
    }
    last = &a;
    last_end = *end;
  }
  return LineFinding();
}

LineResult CheckPairs(
    const CheckedLine& line, const char* group, ConformanceTrace* trace,
    absl::FunctionRef<PairResult(const OrderedPair&, PairCheck*)> check_pair) {
  FunctionOrder& order = trace->order();
  // Before the status: an empty pool compares nothing and stops nowhere.
  if (order.PoolIsEmpty()) return LineHolds(/*triggered=*/false);
  if (!order.status().ok()) return order.status();
  bool in_pool = false;
  for (const LineParam& param : line.params) {
    in_pool = in_pool || order.InPool(param.name);
  }
  if (!in_pool) return LineHolds(/*triggered=*/false);
  PairCheck check(line.conditions.at(group), trace);
  // A line of A, B and C is about the pairs A, B and B, C.
  for (size_t i = 0; i + 1 < line.params.size(); ++i) {
    for (const TableThread& thread : order.threads()) {
      PairResult result = check_pair(
          {line.params[i].name, line.params[i + 1].name, thread}, &check);
      if (Fails(result)) return result;
    }
  }
  return LineHolds(check.triggered());
}

}  // namespace

LineResult CheckCover(const CheckedLine& line, ConformanceTrace* trace) {
  // One that holds is never "triggered" there.
  return CheckPairs(line, "func_cover", trace, CheckCovered);
}

LineResult CheckLead(const CheckedLine& line, ConformanceTrace* trace) {
  return CheckPairs(line, "func_lead", trace, CheckLed);
}

}  // namespace traincheck
