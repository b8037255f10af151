// One reference run as it was fed, kept so that it can be read more than
// once.
//
// Threads: one object, one thread at a time, but for Replay.
#ifndef TRAINCHECK_INFERENCE_RECORDED_RUN_H_
#define TRAINCHECK_INFERENCE_RECORDED_RUN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "inference/inference.h"
#include "invariants/rules/run_reader.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

class RecordedRun {
 public:
  explicit RecordedRun(const ReferenceRun& info) : info_(info) {}

  const ReferenceRun& info() const { return info_; }

  void SetAttempt(uint32_t process, uint32_t attempt) {
    attempts_[process] = attempt;
  }
  void Add(uint32_t process, const StoredBatch& batch) {
    events_.push_back({process, batch, std::nullopt});
  }
  void End(uint32_t process, ProcessEnd end) {
    events_.push_back({process, {}, end});
  }

  // May run on several threads at once.
  void Replay(std::vector<RunObserver*> observers) const {
    RunReader reader(std::move(observers));
    for (const auto& [process, attempt] : attempts_) {
      reader.SetAttempt(process, attempt);
    }
    for (const Event& event : events_) {
      if (event.end) {
        reader.EndProcess(event.process, *event.end);
      } else {
        reader.Consume(event.process, event.batch);
      }
    }
    reader.EndRun();
  }

 private:
  struct Event {
    uint32_t process = 0;
    StoredBatch batch;
    std::optional<ProcessEnd> end;
  };

  const ReferenceRun info_;
  std::map<uint32_t, uint32_t> attempts_;  // by process
  std::vector<Event> events_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_RECORDED_RUN_H_
