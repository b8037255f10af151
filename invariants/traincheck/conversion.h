// What the parts of the conversion of one process share: where records go, its
// clock, its threads, and what could not be carried over.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONVERSION_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONVERSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariants/trace/clock.h"
#include "invariants/traincheck/definition_writer.h"
#include "invariants/traincheck/open_calls.h"
#include "invariants/traincheck/record_stream.h"
#include "invariants/traincheck/trace_line.h"

namespace traincheck {

// The ring of the thread that trains.
inline constexpr uint32_t kMainRing = 1;
// As many as a daemon takes.
inline constexpr uint32_t kMaxImportedRing = 1023;

// What a context switches gradients to, and what was in force before it was
// made: set_grad_enabled takes effect at once.
struct MadeGradMode {
  bool enabled = false;
  bool before = true;
};

struct TraceThread {
  uint32_t ring = 0;
  OpenTraceCalls open;
  bool grad_enabled = true;  // outside all calls
  // What was in force before each context that is open.
  std::vector<bool> grad_before;
  // Of the context that was made last and is not entered yet.
  std::optional<MadeGradMode> made_grad_mode;
  UserStage stage = UserStage::kNone;

  bool& grad_mode() {
    return open.empty() ? grad_enabled : open.back().grad_enabled;
  }
  const Call* innermost() const {
    return open.empty() ? nullptr : &open.back().call;
  }
  bool Inside(CallCategory::Number category) const {
    return open.Inside(category);
  }
};

class Conversion {
 public:
  // All must outlive this object. `main_thread` gets ring 1.
  Conversion(DefinitionWriter* definitions, RecordStream* records,
             uint64_t main_thread);
  Conversion(const Conversion&) = delete;
  Conversion& operator=(const Conversion&) = delete;

  DefinitionWriter& definitions() { return definitions_; }
  RecordStream& records() { return records_; }
  Clock& clock() { return clock_; }

  // Null: there are more threads than a process may have rings.
  TraceThread* Thread(uint64_t id);

  // Writes a mark and tells the clock.
  void Mark(TraceThread* thread, MarkKind kind, uint32_t object,
            uint64_t value);
  // Writes the marks of steps that the clock has closed since the last time.
  void TellClosedSteps(const TraceThread& thread);

  // Something of the trace that records have no place for, counted by name.
  void LeaveOut(const std::string& what);
  const std::map<std::string, uint64_t>& left_out() const { return left_out_; }
  // Calls without an end.
  uint64_t CountOpenCalls() const;
  void AddIncomplete(uint64_t calls) { incomplete_ += calls; }

 private:
  DefinitionWriter& definitions_;
  RecordStream& records_;
  Clock clock_;
  std::map<uint64_t, TraceThread> threads_;
  uint32_t rings_ = kMainRing;
  uint64_t closed_steps_ = 0;
  uint64_t incomplete_ = 0;
  std::map<std::string, uint64_t> left_out_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONVERSION_H_
