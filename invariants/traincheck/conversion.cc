#include "invariants/traincheck/conversion.h"

namespace traincheck {

namespace {

// Names are data: a trace must not fill the report.
constexpr size_t kMaxNamesLeftOut = 500;

}  // namespace

Conversion::Conversion(DefinitionWriter* definitions, RecordStream* records,
                       uint64_t main_thread)
    : definitions_(*definitions), records_(*records) {
  // Before any line is read: a thread whose lines come earlier must not get the
  // ring on which steps are counted.
  threads_[main_thread].ring = kMainRing;
}

TraceThread* Conversion::Thread(uint64_t id) {
  const auto found = threads_.find(id);
  if (found != threads_.end()) return &found->second;
  // A daemon takes no more: the lines of the thread are skipped instead.
  if (rings_ == kMaxImportedRing) return nullptr;
  TraceThread& thread = threads_[id];
  thread.ring = ++rings_;
  return &thread;
}

void Conversion::Mark(TraceThread* thread, MarkKind kind, uint32_t object,
                      uint64_t value) {
  MarkRecord record = {};
  record.object = object;
  record.value = value;
  records_.Write(thread->ring, RecordType::kMark, static_cast<uint8_t>(kind),
                 record);
  // The clock is the one that readers have, fed with the same records, so that
  // the steps that it closes are those that a reader closes here.
  clock_.OnMark({kind, object, value, thread->innermost(), thread->ring});
  TellClosedSteps(*thread);
}

void Conversion::TellClosedSteps(const TraceThread& thread) {
  // After a call without an end, a gap, a reader no longer derives steps from
  // calls and goes by these marks.
  for (; closed_steps_ < clock_.step(); ++closed_steps_) {
    MarkRecord record = {};
    record.value = closed_steps_;
    records_.Write(thread.ring, RecordType::kMark,
                   static_cast<uint8_t>(MarkKind::kStepClosed), record);
  }
}

void Conversion::LeaveOut(const std::string& what) {
  const auto found = left_out_.find(what);
  if (found != left_out_.end()) {
    ++found->second;
  } else if (left_out_.size() < kMaxNamesLeftOut) {
    left_out_.emplace(what, 1);
  } else {
    ++left_out_["other names"];
  }
}

uint64_t Conversion::CountOpenCalls() const {
  uint64_t calls = incomplete_;
  for (const auto& [id, thread] : threads_) calls += thread.open.size();
  return calls;
}

}  // namespace traincheck
