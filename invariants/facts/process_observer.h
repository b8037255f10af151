// What a relation sees of a process: its events, with the facts as they are
// then.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_PROCESS_OBSERVER_H_
#define TRAINCHECK_INVARIANTS_FACTS_PROCESS_OBSERVER_H_

#include <cstdint>

#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"
#include "invariants/trace/process_reader.h"

namespace traincheck {

class ProcessFacts;

class ProcessObserver {
 public:
  virtual ~ProcessObserver() = default;
  virtual void OnCallBegin(const ProcessFacts& facts, const Call& call) {}
  virtual void OnCallEnd(const ProcessFacts& facts, const Call& call,
                         CallOutcome outcome) {}
  virtual void OnState(const ProcessFacts& facts, const StateEvent& event) {}
  // Of a process that is a worker: the only of its events that are shown.
  virtual void OnWorkerState(const ProcessFacts& facts,
                             const StateEvent& event) {}
  virtual void OnMark(const ProcessFacts& facts, const MarkEvent& event) {}
  virtual void OnCollective(const ProcessFacts& facts,
                            const CollectiveEvent& event) {}
  virtual void OnCheckpointEntry(const ProcessFacts& facts,
                                 const CheckpointEntryEvent& event) {}
  virtual void OnDefinition(const ProcessFacts& facts, RecordType type,
                            uint32_t id) {}
  // Time has passed (ProcessFacts::now_us), and nothing was recorded.
  virtual void OnQuiet(const ProcessFacts& facts) {}
  virtual void OnEnd(const ProcessFacts& facts, ProcessEnd end) {}
  // Saves or restores what it has seen; one that keeps nothing has no fields.
  virtual void Fields(Archive& archive) {}
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_PROCESS_OBSERVER_H_
