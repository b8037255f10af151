// All facts of one process, kept up to date from its batches. An event goes
// first to what trackers read (FactInputs), to the clock and to the stage, then
// to the trackers, then to the observers (the relations). At the end of a call
// observers see the facts as the call leaves them, before the clock advances
// and what belongs to the next span begins (AfterCall of the trackers).
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_PROCESS_FACTS_H_
#define TRAINCHECK_INVARIANTS_FACTS_PROCESS_FACTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "invariants/facts/gaps.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/process_observer.h"
#include "invariants/facts/recorded_steps.h"
#include "invariants/trace/clock.h"
#include "invariants/trace/events.h"
#include "invariants/trace/process_reader.h"
#include "invariants/trace/stage.h"

namespace traincheck {

class AccumulatedMeans;
class Autocast;
class BlamedCalls;
class ClippedGradients;
class FrozenModes;
class GradScaling;
class LoaderPasses;
class ModuleModes;
class Observations;
class OptimizerBooks;
class RandomDraws;
class RowChanges;
class Sight;
struct Trackers;
class TrainingModes;
class VariableState;
class WrapperCalls;

// "rank 1", or "process 4" before its place is known.
std::string NameOfProcess(uint32_t number, std::optional<int32_t> rank);

class ProcessFacts : private EventVisitor {
 public:
  explicit ProcessFacts(uint32_t number);
  ~ProcessFacts() override;
  ProcessFacts(const ProcessFacts&) = delete;
  ProcessFacts& operator=(const ProcessFacts&) = delete;

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
  std::string Name() const { return NameOfProcess(number_, rank_); }

  const ProcessDefinitions& definitions() const {
    return reader_.definitions();
  }
  // When the last event was, by the clock of the process's machine.
  uint64_t now_us() const { return reader_.now_us(); }
  const Clock& clock() const { return clock_; }
  // What trackers keep; each one's header says what that is.
  const Autocast& autocast() const;
  const WrapperCalls& wrapper_calls() const;
  const ModuleModes& module_modes() const;
  const TrainingModes& training_modes() const;
  const FrozenModes& frozen_modes() const;
  const AccumulatedMeans& accumulated_means() const;
  const Observations& observations() const;
  const Sight& sight() const;
  const ClippedGradients& clipped_gradients() const;
  const BlamedCalls& blamed_calls() const;
  const RandomDraws& random_draws() const;
  const LoaderPasses& loader_passes() const;
  const GradScaling& grad_scaling() const;
  const RowChanges& row_changes() const;
  // Null: not known.
  const char* stage() const { return stage_.name(); }
  const Ownership& ownership() const { return ownership_; }
  // Null before its first state record.
  const VariableState* Variable(uint32_t id) const;
  const std::unordered_map<uint32_t, VariableState>& variables() const;
  // Do training forwards write this buffer, in the variable's module or in
  // another of its class?
  bool IsWrittenByForwards(uint32_t variable) const;
  // What each optimizer was seen to do since its last step.
  const OptimizerBooks& optimizer_books() const;

  // Gaps so far; windows compare it between their open and close.
  uint64_t gaps() const { return gaps_.count(); }
  // Names the process as it is known now.
  std::string gap_reason() const;
  // Nothing was heard of it any more: its last records may be missing.
  bool was_lost() const { return was_lost_; }
  // Steps that were not sampled.
  const RecordedSteps& recorded() const { return recorded_; }
  std::string not_sampled() const { return RecordedSteps::Words(Name()); }
  // "torch.optim.sgd.SGD.step"; "" where not known.
  std::string FunctionName(uint32_t id) const;

 private:
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
  void OnQuiet() override;
  void OnGap(const std::string& reason) override;
  void OnDefinition(RecordType type, uint32_t id) override;

  const uint32_t number_;
  ProcessReader reader_;
  Ownership ownership_;
  RecordedSteps recorded_;
  Gaps gaps_;
  Clock clock_;
  StageTracker stage_;
  // All but recorded_ and gaps_, which trackers read and which are saved last;
  // the clock, which at the end of a call comes after the observers; and the
  // stage, which reads the clock's contexts.
  const std::unique_ptr<Trackers> trackers_;
  std::optional<uint32_t> attempt_;
  std::optional<int32_t> rank_;
  int32_t world_ = 0;
  bool was_lost_ = false;
  std::vector<ProcessObserver*> observers_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_PROCESS_FACTS_H_
