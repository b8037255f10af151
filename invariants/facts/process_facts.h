// All facts of one process, kept up to date from its batches. Observers (the
// relations) see each event after the facts have taken it over; at the end of
// a call they see the facts as the call leaves them, before what belongs to
// the next span begins.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_PROCESS_FACTS_H_
#define TRAINCHECK_INVARIANTS_FACTS_PROCESS_FACTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "invariants/facts/autocast.h"
#include "invariants/facts/grad_scaling.h"
#include "invariants/facts/loader_passes.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/random_draws.h"
#include "invariants/facts/recorded_steps.h"
#include "invariants/facts/row_changes.h"
#include "invariants/facts/variable_state.h"
#include "invariants/facts/wrapper_calls.h"
#include "invariants/trace/clock.h"
#include "invariants/trace/events.h"
#include "invariants/trace/process_reader.h"
#include "invariants/trace/stage.h"

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
  virtual void OnEnd(const ProcessFacts& facts, ProcessEnd end) {}
  // Saves or restores what it has seen; one that keeps nothing has no fields.
  virtual void Fields(Archive& archive) {}
};

class ProcessFacts : private EventVisitor {
 public:
  explicit ProcessFacts(uint32_t number)
      : number_(number), reader_(this), ownership_(&reader_.definitions()) {}

  // Of which attempt of its run it is. REQUIRES: nothing was consumed yet, or
  // it is the same as before.
  void SetAttempt(uint32_t attempt) { attempt_ = attempt; }

  // Must outlive this object.
  void AddObserver(ProcessObserver* observer) {
    observers_.push_back(observer);
  }

  void Consume(const StoredBatch& batch) { reader_.Consume(batch); }
  void End(ProcessEnd end);

  // Saves or restores the facts, then the state of the observers. REQUIRES:
  // the observers are the same.
  void Fields(Archive& archive);

  // Number of the process in its run.
  uint32_t number() const { return number_; }
  // That the caller gave, else the one that its launcher named.
  uint32_t attempt() const {
    return attempt_.value_or(definitions().process().attempt);
  }
  // Workers of loaders train nothing.
  bool is_worker() const {
    return definitions().process().kind == ProcessKind::kWorker;
  }
  std::optional<int32_t> rank() const { return rank_; }
  int32_t world() const { return world_; }
  // "rank 1", or "process 4" before its place is known.
  std::string Name() const;

  const ProcessDefinitions& definitions() const {
    return reader_.definitions();
  }
  const Clock& clock() const { return clock_; }
  const Autocast& autocast() const { return autocast_; }
  const WrapperCalls& wrapper_calls() const { return wrapper_calls_; }
  const RandomDraws& random_draws() const { return random_draws_; }
  const LoaderPasses& loader_passes() const { return loader_passes_; }
  const GradScaling& grad_scaling() const { return grad_scaling_; }
  // Null: not known.
  const char* stage() const { return stage_.name(); }
  const Ownership& ownership() const { return ownership_; }
  // Null before its first state record.
  const VariableState* Variable(uint32_t id) const;
  const std::unordered_map<uint32_t, VariableState>& variables() const {
    return variables_;
  }
  // Null: its rows were never recorded.
  const RowChanges* Rows(uint32_t variable) const;
  // Do training forwards write this buffer, in the variable's module or in
  // another of its class?
  bool IsWrittenByForwards(uint32_t variable) const;
  // Learning rate of a parameter group when its optimizer's step began: as last
  // recorded; nullopt: never, or records are missing since.
  std::optional<double> LearningRate(uint32_t optimizer, uint32_t group) const;
  // Backwards since the last step of the optimizer (opt. facts); nullopt: not
  // known.
  std::optional<uint64_t> BackwardsSince(uint32_t optimizer) const;
  // Were its gradients cleared since its last step, by zero_grad or by hand?
  // Unknown: nobody looked, or it may have been in a step that nobody saw.
  Tri ClearedSince(uint32_t optimizer) const;
  // Was there a backward since its last step that did not tell its gradients?
  bool MissedBackwardSince(uint32_t optimizer) const;

  // Gaps so far; windows compare it between their open and close.
  uint64_t gaps() const { return gaps_; }
  // Names the process as it is known now.
  std::string gap_reason() const;
  // Steps that were not sampled.
  const RecordedSteps& recorded() const { return recorded_; }
  std::string not_sampled() const { return RecordedSteps::Words(Name()); }

  // "torch.optim.sgd.SGD.step"; "" where not known.
  std::string FunctionName(uint32_t id) const;

 private:
  struct OptimizerBooks {
    uint64_t backwards_before = 0;  // count of all backwards at its last step
    bool cleared = false;
    bool maybe_cleared = false;
    uint64_t missed_before = 0;  // count of all missed ones at its last step
    uint64_t gaps_before = 0;    // count of all gaps at its last step
    std::map<uint32_t, double> learning_rates;  // by group, as last recorded

    void Fields(Archive& archive) {
      archive(backwards_before, cleared, maybe_cleared, missed_before,
              gaps_before, learning_rates);
    }
  };

  void OnCallBegin(const Call& call) override;
  void OnCallEnd(const Call& call, CallOutcome outcome,
                 uint8_t output_flags) override;
  void OnState(const StateEvent& event) override;
  void OnStatistics(const StatisticsEvent& event) override;
  void OnRows(const RowsEvent& event) override;
  void OnScalar(const ScalarEvent& event) override;
  void OnMark(const MarkEvent& event) override;
  void OnCollective(const CollectiveEvent& event) override;
  void OnContext(const ContextEvent& event) override;
  void OnCheckpointEntry(const CheckpointEntryEvent& event) override;
  void OnPlace(const PlaceRecord& place) override;
  void OnGap(const std::string& reason) override;
  void OnDefinition(RecordType type, uint32_t id) override;

  void BeginStep(const Call& step);
  void EndStep(const Call& step, CallOutcome outcome);
  void Clear(const Call& zero_grad);
  // A gradient that was there at the last step is not any more; not `sure`:
  // it may have been there.
  void ClearByState(uint32_t variable, bool sure);
  // A backward begins that tells nothing of gradients.
  void MissBackward();
  // Are records missing since the last step of the optimizer?
  bool HasGapSince(uint32_t optimizer) const;

  const uint32_t number_;
  ProcessReader reader_;
  Ownership ownership_;
  Clock clock_;
  StageTracker stage_;
  Autocast autocast_;
  WrapperCalls wrapper_calls_;
  RandomDraws random_draws_;
  LoaderPasses loader_passes_;
  GradScaling grad_scaling_;
  std::map<uint32_t, RowChanges> rows_;  // by variable
  // Class of the module and name in it, of buffers.
  std::set<std::string> written_by_forwards_;
  std::unordered_map<uint32_t, VariableState> variables_;
  std::map<uint32_t, OptimizerBooks> optimizers_;
  uint64_t backwards_ = 0;
  uint64_t missed_backwards_ = 0;
  RecordedSteps recorded_;
  std::optional<uint32_t> attempt_;
  std::optional<int32_t> rank_;
  int32_t world_ = 0;
  uint64_t gaps_ = 0;
  std::string gap_reason_;  // of the last one, as the reader told it
  std::vector<ProcessObserver*> observers_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_PROCESS_FACTS_H_
