// What one thread records: its ring, its stack of open calls, its clock. When
// the thread ends, another one goes on where it left off.
//
// Owned by ProcessRecorder and never freed, used by its thread alone; nothing
// here blocks or allocates but for a call stack that grows.
#ifndef TRAINCHECK_AGENT_CAPTURE_THREAD_RECORDER_H_
#define TRAINCHECK_AGENT_CAPTURE_THREAD_RECORDER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "agent/capture/capture_mode.h"
#include "agent/capture/clock.h"
#include "agent/capture/definitions.h"
#include "agent/capture/tick_clock.h"
#include "agent/ring/ring_writer.h"
#include "proto/record_format.h"
#include "proto/record_writer.h"

namespace traincheck::agent {

// A wrapped call that has begun and not ended.
struct OpenCall {
  uint64_t number;
  const void* self;  // first argument; for comparing only
  uint8_t category;
  // Open calls of these categories up to here, this one included.
  uint32_t forwards;
  uint32_t backwards;
};

class ThreadRecorder {
 public:
  // For the calling thread. REQUIRES: both outlive this.
  ThreadRecorder(RingWriter* ring, Definitions* definitions)
      : ring_(ring), definitions_(definitions), last_us_(NowUs()) {
    WriteClockSync();
  }

  // The thread is gone. Threads: from its destructors, without the GIL.
  void End() {
    ring_->MarkClosed();
    in_use_.store(false, std::memory_order_release);
  }
  bool in_use() const { return in_use_.load(std::memory_order_acquire); }
  // Goes on for the calling thread. REQUIRES: !in_use().
  void TakeOver() {
    in_use_.store(true, std::memory_order_relaxed);
    open_calls_.clear();
    in_hook_ = false;
    ring_->Reopen();
    WriteClockSync();
  }

  RingWriter& ring() { return *ring_; }
  std::vector<OpenCall>& open_calls() { return open_calls_; }

  // Number of the call that begins now.
  uint64_t NextCall() { return next_call_++; }

  // A record of `size` bytes that begins with its header.
  void Append(RecordHeader* record, size_t size, RecordType type,
              uint8_t flags) {
    const uint64_t now_us = NowUs();
    *record = {static_cast<uint16_t>(size), static_cast<uint8_t>(type), flags,
               Delta(now_us)};
    Append(record, size, now_us);
  }

  // A record without fields.
  template <typename Record>
  void Append(Record record, RecordType type, uint8_t flags = 0) {
    Append(&record.header, sizeof record, type, flags);
  }

  // A record with fields, which `out` has put into `buffer`.
  void Append(FieldWriter& out, const char* buffer, RecordType type,
              uint8_t flags) {
    const uint64_t now_us = NowUs();
    const size_t size = out.Finish(type, flags, Delta(now_us));
    if (size != 0) Append(buffer, size, now_us);
  }

  void WriteClockSync() {
    CalibrateTicks();
    ClockSyncRecord sync = {};
    sync.monotonic_ns = MonotonicNs();
    sync.realtime_ns = RealtimeNs();
    sync.next_call = next_call_;
    Append(sync, RecordType::kClockSync);
  }

  // A ClockSync if a step has closed since this ring's last.
  void SyncWith(uint64_t closed_steps) {
    if (closed_steps == synced_steps_) return;
    synced_steps_ = closed_steps;
    WriteClockSync();
  }

  // While one of our own hooks runs nothing that it calls is recorded.
  bool in_hook() const { return in_hook_; }
  void set_in_hook(bool in_hook) { in_hook_ = in_hook; }

 private:
  void Append(const void* record, size_t size, uint64_t now_us) {
    // What the plan does not want is not offered and not dropped.
    if (g_capture_mode == CaptureMode::kOff) return;
    if (ring_->Append(record, size)) [[likely]] {
      last_us_ = now_us;
    } else {
      definitions_->Retry();
    }
  }

  uint32_t Delta(uint64_t now_us) const {
    // The clock may step back a little when its scale becomes known.
    const uint64_t passed_us = now_us > last_us_ ? now_us - last_us_ : 0;
    return static_cast<uint32_t>(std::min<uint64_t>(passed_us, UINT32_MAX));
  }

  RingWriter* const ring_;
  Definitions* const definitions_;
  std::atomic<bool> in_use_{true};
  std::vector<OpenCall> open_calls_;
  uint64_t next_call_ = 1;
  uint64_t last_us_;
  uint64_t synced_steps_ = 0;
  bool in_hook_ = false;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_THREAD_RECORDER_H_
