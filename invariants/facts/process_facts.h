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
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "invariants/facts/accumulated_means.h"
#include "invariants/facts/autocast.h"
#include "invariants/facts/blamed_calls.h"
#include "invariants/facts/clipped_gradients.h"
#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/frozen_modes.h"
#include "invariants/facts/gaps.h"
#include "invariants/facts/grad_scaling.h"
#include "invariants/facts/loader_passes.h"
#include "invariants/facts/module_modes.h"
#include "invariants/facts/observations.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/process_observer.h"
#include "invariants/facts/random_draws.h"
#include "invariants/facts/recorded_steps.h"
#include "invariants/facts/row_changes.h"
#include "invariants/facts/sight.h"
#include "invariants/facts/training_modes.h"
#include "invariants/facts/variable_states.h"
#include "invariants/facts/wrapper_calls.h"
#include "invariants/trace/clock.h"
#include "invariants/trace/events.h"
#include "invariants/trace/process_reader.h"
#include "invariants/trace/stage.h"

namespace traincheck {

// "rank 1", or "process 4" before its place is known.
std::string NameOfProcess(uint32_t number, std::optional<int32_t> rank);

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
  std::string Name() const { return NameOfProcess(number_, rank_); }

  const ProcessDefinitions& definitions() const {
    return reader_.definitions();
  }
  // When the last event was, by the clock of the process's machine.
  uint64_t now_us() const { return reader_.now_us(); }
  const Clock& clock() const { return clock_; }
  const Autocast& autocast() const { return autocast_; }
  const WrapperCalls& wrapper_calls() const { return wrapper_calls_; }
  const ModuleModes& module_modes() const { return module_modes_; }
  const TrainingModes& training_modes() const { return training_modes_; }
  const FrozenModes& frozen_modes() const { return frozen_modes_; }
  const AccumulatedMeans& accumulated_means() const {
    return accumulated_means_;
  }
  const Observations& observations() const { return observations_; }
  const Sight& sight() const { return sight_.sight(); }
  const ClippedGradients& clipped_gradients() const {
    return clipped_gradients_;
  }
  const BlamedCalls& blamed_calls() const { return blamed_calls_; }
  const RandomDraws& random_draws() const { return random_draws_; }
  const LoaderPasses& loader_passes() const { return loader_passes_; }
  const GradScaling& grad_scaling() const { return grad_scaling_; }
  const RowChanges& row_changes() const { return row_changes_; }
  // Null: not known.
  const char* stage() const { return stage_.name(); }
  const Ownership& ownership() const { return ownership_; }
  // Null before its first state record.
  const VariableState* Variable(uint32_t id) const {
    return variables_.Find(id);
  }
  const std::unordered_map<uint32_t, VariableState>& variables() const {
    return variables_.all();
  }
  // Do training forwards write this buffer, in the variable's module or in
  // another of its class?
  bool IsWrittenByForwards(uint32_t variable) const {
    return variables_.IsWrittenByForwards(variable);
  }
  // What each optimizer was seen to do since its last step.
  const OptimizerBooks& optimizer_books() const { return optimizer_books_; }

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

  // All trackers, in the order in which they take over an event and are saved:
  // optimizer_books_ reads variables_ as the event leaves it. Not among them
  // are recorded_ and gaps_, which trackers read and which are saved last; the
  // clock, which at the end of a call comes after the observers; and the stage,
  // which reads the clock's contexts.
  auto Trackers() {
    return std::tie(autocast_, wrapper_calls_, module_modes_, training_modes_,
                    random_draws_, loader_passes_, grad_scaling_, row_changes_,
                    variables_, optimizer_books_, frozen_modes_,
                    accumulated_means_, observations_, clipped_gradients_,
                    sight_, blamed_calls_);
  }
  template <typename Function>
  void ForEachTracker(const Function& function) {
    std::apply([&](auto&... tracker) { (function(tracker), ...); }, Trackers());
  }

  const uint32_t number_;
  ProcessReader reader_;
  Ownership ownership_;
  RecordedSteps recorded_;
  Gaps gaps_;
  Clock clock_;
  StageTracker stage_;
  const FactInputs inputs_{reader_.definitions(), ownership_, recorded_, gaps_};
  Autocast autocast_{&inputs_};
  WrapperCalls wrapper_calls_{&inputs_};
  ModuleModes module_modes_{&inputs_};
  TrainingModes training_modes_{&inputs_};
  RandomDraws random_draws_{&inputs_};
  LoaderPasses loader_passes_{&inputs_};
  GradScaling grad_scaling_{&inputs_};
  RowChanges row_changes_{&inputs_};
  VariableStates variables_{&inputs_};
  OptimizerBooks optimizer_books_{&inputs_, &variables_, &grad_scaling_};
  FrozenModes frozen_modes_{&inputs_, &variables_};
  AccumulatedMeans accumulated_means_{&inputs_};
  Observations observations_{&inputs_};
  ClippedGradients clipped_gradients_{&inputs_};
  SightTracker sight_{&inputs_};
  BlamedCalls blamed_calls_{&inputs_};
  std::optional<uint32_t> attempt_;
  std::optional<int32_t> rank_;
  int32_t world_ = 0;
  bool was_lost_ = false;
  std::vector<ProcessObserver*> observers_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_PROCESS_FACTS_H_
