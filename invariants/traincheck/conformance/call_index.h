// The calls of a trace (semantics, 1.6).
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CALL_INDEX_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CALL_INDEX_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "invariants/traincheck/conformance/trace_record.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

struct TableCall {
  const std::string* id = nullptr;
  std::vector<const TableRow*> rows;  // at most two, as the files have them
  // Into the copy of its begin that Distinct, ConsistentOutput,
  // ConsistentInputOutput and Threshold share.
  WrittenFields written;
};

// A call with both its ends looked up.
struct CallEnds {
  const TableRow* begin = nullptr;
  const TableRow* end = nullptr;  // null: the trace has none

  bool complete() const {
    return end != nullptr && end->kind == TraceLineKind::kCallEnd;
  }
  bool raised() const {
    return end != nullptr && end->kind == TraceLineKind::kCallRaised;
  }
};

class CallIndex {
 public:
  // `table` must outlive this object and not change.
  explicit CallIndex(const TraceTable* table);
  CallIndex(const CallIndex&) = delete;
  CallIndex& operator=(const CallIndex&) = delete;

  // In the order of their first lines.
  const std::vector<TableCall*>& Of(absl::string_view function) const;

  // FailedPrecondition: TrainCheck stops here, as there is no begin, or no end
  // and the call is not its thread's outermost.
  absl::StatusOr<CallEnds> Ends(const TableCall& call) const;
  // The same, and what TrainCheck reads of a call that has not returned must be
  // recorded.
  absl::StatusOr<CallEnds> Event(const TableCall& call) const;

  // Is each call that has a line strictly between these times on the thread
  // there as a whole? FailedPrecondition: one is not, and TrainCheck stops.
  // Asked for one call again, the answer is remembered.
  absl::Status CheckWithin(const TableCall& call, const CallEnds& ends);
  // The calls of this function that lie within it, by id.
  // REQUIRES: CheckWithin is ok.
  std::vector<const TableCall*> Within(const CallEnds& ends,
                                       absl::string_view function) const;

  // When the last line of the thread was written.
  int64_t LastTime(const TableThread& thread) const;

 private:
  using Rows = std::vector<const TableRow*>;

  absl::Status LookWithin(const CallEnds& ends) const;

  const TraceTable& table_;
  absl::flat_hash_map<const std::string*, TableCall> calls_;  // by id
  absl::flat_hash_map<absl::string_view, std::vector<TableCall*>> by_function_;
  // Lines of calls by time.
  std::map<TableThread, Rows> by_thread_;
  // Their begins, by function, too.
  std::map<std::pair<TableThread, const std::string*>, Rows> begins_;
  std::map<TableThread, const TableRow*>
      first_begin_;  // as the files have them
  std::map<TableThread, int64_t> last_time_;
  absl::flat_hash_map<const TableCall*, absl::Status> looked_within_;
};

// The time of a call. One without an end lasts until the last line of its
// thread.
class CallSpan {
 public:
  CallSpan(const CallEnds& ends, int64_t last_time)
      : from_(ends.begin->time),
        to_(ends.end != nullptr ? ends.end->time : last_time),
        open_(ends.end == nullptr) {}

  int64_t from() const { return from_; }
  // Without its two ends: for calls.
  bool StrictlyHas(int64_t time) const;
  // With them: for changes of variables.
  bool Has(int64_t time) const;

 private:
  int64_t from_;
  int64_t to_;
  bool open_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CALL_INDEX_H_
