// What FunctionCover and FunctionLead ask of a trace: which functions they look
// at, and which of them run beside each other and not within (semantics, 3.3).
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_FUNCTION_ORDER_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_FUNCTION_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "invariants/traincheck/conformance/trace_record.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

// A call of a function on one thread.
struct OrderedCall {
  const TableRow* begin = nullptr;
  const TableRow* end = nullptr;  // null: the trace has none
  WrittenFields written;          // into the copy of its begin
};

class FunctionOrder {
 public:
  // `table` must outlive this object and not change.
  explicit FunctionOrder(const TraceTable& table);
  FunctionOrder(const FunctionOrder&) = delete;
  FunctionOrder& operator=(const FunctionOrder&) = delete;

  // FailedPrecondition: TrainCheck stops at every Cover and Lead of the file.
  const absl::Status& status() const { return status_; }

  // Does TrainCheck look at it?
  bool InPool(absl::string_view function) const;
  bool PoolIsEmpty() const { return pool_.empty(); }

  // Those with a function of the pool, by process and thread.
  const std::vector<TableThread>& threads() const { return threads_; }
  // Of the function on the thread, by time. REQUIRES: there are some.
  std::vector<OrderedCall>& Calls(const TableThread& thread,
                                  absl::string_view function);

  // Do some call of one and some call of the other not overlap? False for a
  // function and itself.
  bool SameLevel(const TableThread& thread, absl::string_view a,
                 absl::string_view b) const;
  // Is there any function in the pool with which it is on one level there?
  bool HasPartner(const TableThread& thread, absl::string_view function);

 private:
  struct Times {
    std::vector<OrderedCall> calls;
    int64_t last_begin = 0;
    int64_t first_end = 0;
    bool open = false;  // a call has no end
  };
  using ByFunction = std::map<std::string, Times, std::less<>>;

  void FindPool(const TraceTable& table);
  void Order(const TraceTable& table);
  void FindStop();
  static bool Reaches(const Times& a, const Times& b);

  absl::Status status_;
  absl::flat_hash_set<std::string> pool_;
  std::vector<TableThread> threads_;
  std::map<TableThread, ByFunction> by_thread_;
  std::map<std::pair<TableThread, std::string>, bool> partners_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_FUNCTION_ORDER_H_
