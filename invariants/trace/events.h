// The events of one process, as its records tell them in the order of their
// time.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_TRACE_EVENTS_H_
#define TRAINCHECK_INVARIANTS_TRACE_EVENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invariants/trace/archive.h"
#include "invariants/trace/definitions.h"
#include "proto/record_format.h"

namespace traincheck {

struct Call {
  uint32_t ring = 0;
  uint64_t number = 0;  // within its ring, from 1
  uint32_t function_id = 0;
  const FunctionInfo* function = nullptr;  // null: id not known
  uint32_t site = 0;
  uint32_t object = 0;  // self; 0: none or not known
  uint8_t flags = 0;    // CallFlag
  // A call around it on its ring was not recorded.
  bool orphan = false;
  // Parent on another ring; number 0: none.
  uint32_t parent_ring = 0;
  uint64_t parent_number = 0;
  // The fields that tell its arguments; "": none is told. See call_values.h.
  std::string content;
  // The same of its result, once it has returned.
  std::string result;
  uint64_t begin_us = 0;  // by the clock of the process's machine

  bool Is(CallFlag flag) const { return (flags & flag) != 0; }

  // A function that was not known when the call began stays so.
  void Fields(Archive& archive) {
    bool known = function != nullptr;
    archive(ring, number, function_id, known, site, object, flags, orphan,
            parent_ring, parent_number, content, begin_us);
    if (!archive.reading()) return;
    const auto* const table = archive.table<ProcessDefinitions>();
    function = known && table ? table->Function(function_id) : nullptr;
    if (known && !function) archive.Fail("a call's function is not defined");
  }
};

enum class CallOutcome {
  kReturned,
  kRaised,
  kUnknown,  // its end was not recorded
};

struct StateEvent {
  uint32_t variable_id = 0;
  const VariableInfo* variable = nullptr;  // null: id not known
  StatePoint point = StatePoint::kNone;
  uint8_t content = 0;  // StateContent
  uint64_t data = 0;    // digests; where content says that they are there
  uint64_t grad = 0;
  // Where a device has digested it; elsewhere statistics follow, on plan.
  std::optional<bool> grad_is_finite;
  const Call* call = nullptr;  // innermost open call of its ring

  bool Has(StateContent bit) const { return (content & bit) != 0; }
};

// Of the data or the gradient of the state record before it.
struct StatisticsEvent {
  uint32_t variable_id = 0;
  StatePoint point = StatePoint::kNone;
  uint8_t of = 0;  // kHasData or kHasGrad
  // Over the elements that are finite.
  double norm = 0;
  double absmax = 0;
  uint64_t nan_count = 0;  // elements
  uint64_t inf_count = 0;

  bool is_finite() const { return nan_count == 0 && inf_count == 0; }
};

// Digests of some rows, likewise. A variable's rows come in order.
struct RowsEvent {
  uint32_t variable_id = 0;
  const VariableInfo* variable = nullptr;
  StatePoint point = StatePoint::kNone;
  uint8_t of = 0;  // kHasData or kHasGrad
  uint64_t first_row = 0;
  uint64_t rows = 0;  // in all
  std::vector<uint64_t> digests;
};

struct ScalarEvent {
  uint32_t object = 0;
  StatePoint point = StatePoint::kNone;
  uint32_t group = 0;
  const std::string* name = nullptr;
  double value = 0;
};

struct MarkEvent {
  MarkKind kind = MarkKind::kNone;
  uint32_t object = 0;
  uint64_t value = 0;
  const Call* call = nullptr;  // innermost open call of its ring
  uint32_t ring = 0;
};

// The call is a collective of this group of its process.
struct CollectiveEvent {
  uint32_t group = 0;
  const ProcessGroupInfo* info = nullptr;  // null: id not known
  // Of this process's collectives of the group, from 0: the same on every
  // member.
  uint64_t sequence = 0;
  const Call* call = nullptr;  // innermost open call of its ring
};

// One entry of what a checkpoint function took or gave.
struct CheckpointEntryEvent {
  const std::string* key = nullptr;  // "model.fc.weight"
  StatePoint point = StatePoint::kNone;
  std::optional<uint64_t> digest;  // of a tensor that could be read
  std::string dtype;               // "" for what is no tensor
  std::vector<uint64_t> shape;
  uint32_t variable = 0;       // live, in whose storage it lies; 0: in none
  uint64_t left_out = 0;       // not 0: that many entries more are not told
  const Call* call = nullptr;  // innermost open call of its ring
};

// A context of user code is entered or left.
struct ContextEvent {
  bool enter = false;
  uint32_t ring = 0;
  const FunctionInfo* function = nullptr;  // its class; null: id not known
  std::string_view content;  // fields that tell what it was made with
};

class EventVisitor {
 public:
  virtual ~EventVisitor() = default;
  virtual void OnCallBegin(const Call& call) = 0;
  virtual void OnCallEnd(const Call& call, CallOutcome outcome,
                         uint8_t output_flags) = 0;
  virtual void OnState(const StateEvent& event) = 0;
  virtual void OnStatistics(const StatisticsEvent& event) {}
  virtual void OnRows(const RowsEvent& event) {}
  virtual void OnScalar(const ScalarEvent& event) = 0;
  virtual void OnMark(const MarkEvent& event) = 0;
  virtual void OnCollective(const CollectiveEvent& event) {}
  virtual void OnContext(const ContextEvent& event) {}
  virtual void OnCheckpointEntry(const CheckpointEntryEvent& event) {}
  virtual void OnPlace(const PlaceRecord& place) = 0;
  // Time has passed, and nothing was recorded: the process is alive.
  virtual void OnQuiet() {}
  // Records are missing here; windows open now cannot tell that something did
  // not happen.
  virtual void OnGap(const std::string& reason) = 0;
  virtual void OnDefinition(RecordType type, uint32_t id) = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_EVENTS_H_
